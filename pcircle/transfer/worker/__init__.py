"""What one worker thread of a copy works with, each part with no more than it needs."""
