"""pcircle doctor as its users run it, judged by what is so."""
