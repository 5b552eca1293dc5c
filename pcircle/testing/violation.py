"""The exception that reports a broken rule found by a simulation."""

from __future__ import annotations


class Violation(AssertionError):
    """A run broke a rule; the message names it and the case to reproduce it.

    >>> from pcircle import testing
    >>> from pcircle.runtime import Task
    >>> class Words(Task[int, str]):
    ...     def seed(self): return range(9)
    ...     def process(self, item, context): return str(item)
    ...     def merge(self, a, b): return a + b
    >>> try:
    ...     testing.check(Words)
    ... except testing.Violation as found:
    ...     print("merge(a, b) is not merge(b, a)" in str(found))
    True
    """
