"""pcircle doctor: report the facts that support needs, such as MPI, limits and file systems.

Each fact is determined by the same code that the tools use. Facts that cannot be determined are
listed with the reason.
"""
