"""The pages of docs/: their examples run, and their statements about the tools are true."""
