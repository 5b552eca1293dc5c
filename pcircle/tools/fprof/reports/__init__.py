"""Reports of a profile: their data model, and the output as text, CSV, HTML and plots."""
