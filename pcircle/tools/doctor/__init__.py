"""pcircle doctor: report the facts that support needs, such as MPI, limits and file systems.

Each fact is determined by the code that the tools themselves use. A fact that cannot be determined
is listed with the reason.
"""
