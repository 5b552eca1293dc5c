"""What an expression does with an entry."""
