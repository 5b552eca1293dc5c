"""Tests of fbcast: broadcasts by users, the protocol in the simulator, nodes that die."""
