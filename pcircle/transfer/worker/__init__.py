"""The parts of one worker thread of a copy, each with no more than it needs."""
