"""What every command has: start-up, options, console, progress, results."""
