"""What a person or a script sees: names, progress, tables, JSON documents.

The idea: the tools compute, this package renders.  It gets finished, frozen models and turns them
into text, so what a number means is decided in one place and never while printing.  Importing it
is cheap; rich is imported only by a live bar, and only once there is something to show.
"""
