"""What earlier runs have left: what is remembered, and what has changed since."""
