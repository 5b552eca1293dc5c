"""Jobs that are restarted without their lost ranks."""
