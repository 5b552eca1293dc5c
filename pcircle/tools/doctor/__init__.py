"""The facts that support needs first: MPI and launcher, limits, versions, file systems.

The tools' own code determines each fact; a fact that cannot be determined is shown with the reason.
"""
