"""The figures of the papers that pcircle rests on, made again: one module a paper.

``python -m examples.papers.carns fig9`` writes a table (CSV) and a plot of one figure;
``docs/papers.rst`` puts them beside what the papers found.
"""
