"""The simulator for size: its parts, its agreement with the real engine, its command line."""
