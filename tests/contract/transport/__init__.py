"""Tests of the guarantees of `pcircle.transport.contract`, for every transport."""
