"""Transports: one interface for messages between ranks, with five implementations.

Everything above uses `contract.Transport` and cannot distinguish forked processes from MPI ranks or
from the simulated ranks of tests; one contract test suite holds all of them to the same guarantees.
`launch` determines how this process was started, and `start` runs a rank's body on the transport
that fits.

The modules of the transports are imported when they are chosen, and only then, so that `--help`
costs nothing and no MPI library need be installed.
"""
