"""The parts that every command uses: start-up, options, console, progress, results."""
