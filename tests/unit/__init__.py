"""Tests of single modules, which need neither MPI nor a second process."""
