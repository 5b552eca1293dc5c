"""The commands, one package each: options, plan, report, and what only that command does."""
