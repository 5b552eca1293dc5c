"""Reports of a profile: the result as a model, and its forms as text, tables, pages, plots."""
