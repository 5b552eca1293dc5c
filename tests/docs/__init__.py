"""The pages of docs/: their examples run, and what they say of the tools is so."""
