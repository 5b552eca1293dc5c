"""How ranks talk: one contract, and five ways to keep it.

The idea: everything above speaks to ``contract.Transport`` and can't tell forked processes from
MPI ranks or from the simulator's virtual ones; one contract suite holds all of them to the same
promises.  ``launch`` finds out how this process was started and runs a rank's body on the
transport that fits.

What this is not: a place for imports.  Each transport's module is imported by ``launch`` when it
was chosen, and only then, so that ``--help`` costs nothing and no MPI library need be installed.
"""
