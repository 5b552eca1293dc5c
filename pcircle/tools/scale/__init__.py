"""The command `python -m pcircle.scale`, which predicts how a task scales to many ranks."""
