"""Black-box tests of ``fcp``: they run the program and check the resulting file system.

Nothing here imports the tool. The contract is the command line, so the tests start it like a user
does, with and without a launcher, and compare trees by judges that share no code with it.
"""
