"""Completions as their users have them: typed at a terminal, in the real shells."""
