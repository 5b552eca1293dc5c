"""Transports: one interface for messages between ranks, with five implementations.

The layers above use only `contract.Transport`, so they cannot distinguish forked processes from MPI
ranks or from the simulated ranks of tests. One contract test suite checks that all implementations
give the same guarantees. `launch` determines how this process was started and chooses the
transport, and `start` runs a rank's body on it.

A transport's module is imported only when that transport is chosen, so `--help` loads none of them,
and a local job requires no MPI library.
"""
