"""pcircle doctor: report the facts that support needs, such as MPI, limits and file systems.

Where possible, facts are determined by the code that the tools use. Facts that cannot be determined
are listed with the reason.
"""
