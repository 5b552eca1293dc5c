"""The language of expressions: words, grammar, numbers and patterns."""
