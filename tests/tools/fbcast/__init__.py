"""Tests of fbcast: broadcasts as users make them, the protocol in the simulator, nodes that die."""
