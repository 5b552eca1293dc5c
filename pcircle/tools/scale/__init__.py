"""`python -m pcircle.scale`: the model of the engine at scale, as a command."""
