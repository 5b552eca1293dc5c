"""The model of the engine at scale."""
