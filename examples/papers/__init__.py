"""Reproduces the figures of the papers on which pcircle is based; each paper has its own modules.

``python -m examples.papers.carns fig9`` writes a table (CSV) and a plot for one figure.
``docs/papers.rst`` compares the results with the papers.
"""
