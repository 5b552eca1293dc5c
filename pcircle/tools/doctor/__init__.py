"""What a support person asks first: MPI and launcher, limits, versions, file systems.

Everything is found out by the code that the tools use themselves, and what can't be found out is
said with the reason.
"""
