"""The command `pcircle scale`, which predicts how a task scales to many ranks."""
