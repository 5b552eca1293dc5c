"""The engine in real jobs of all kinds, on every transport."""
