"""The engine driven for real: jobs of all kinds on every transport."""
