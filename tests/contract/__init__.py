"""Suites that check every implementation of an interface against the same contract."""
