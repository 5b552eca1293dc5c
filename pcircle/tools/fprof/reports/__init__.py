"""Reports of a profile: a model, and its output as text, tables, pages and plots."""
