"""ffind as users run it, compared with find."""
