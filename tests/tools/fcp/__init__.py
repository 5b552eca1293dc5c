"""Black-box tests of ``fcp``: they run the program and judge what it left on the file system.

Nothing here imports the tool. The contract is the command line, so the tests start it as a user
does, with and without a launcher, and compare trees by judges that share no code with it.
"""
