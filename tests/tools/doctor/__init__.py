"""pcircle doctor as users run it, compared with the actual state of the machine."""
