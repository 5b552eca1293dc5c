"""What is made from the parsers of the commands: manual pages and completions."""
