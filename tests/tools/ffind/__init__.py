"""ffind as its users run it: judged by find."""
