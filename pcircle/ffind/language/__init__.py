"""What an expression says: its words, its grammar, its numbers and patterns."""
