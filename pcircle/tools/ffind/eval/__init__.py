"""The evaluation of expressions for entries."""
