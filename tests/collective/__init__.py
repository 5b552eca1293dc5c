"""Collective operations: in the simulator, and as a store with real ranks that die."""
