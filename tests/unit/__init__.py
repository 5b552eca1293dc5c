"""Tests of single modules, that need no MPI and no second process."""
