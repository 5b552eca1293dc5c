"""The page of exit codes, from the error classes."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

from pcircle.core import errors
from pcircle.core.errors import PcircleError

HEAD = """\
.. Generated from pcircle/core/errors.py by ``python -m docs.generate``: edit the docstrings there.

Exit codes
==========

All tools use the same exit codes. If several apply, the first of these counts: {precedence}.
All ranks of a job exit with the same code.

If a process started by ``mpirun`` or ``srun`` is killed by ``SIGKILL``, the launcher ends the
others and determines the exit code: 9 with MPICH's ``mpirun``, 137 with Open MPI's and with
``srun``. ``SIGINT`` and ``SIGTERM`` to one of the ranks give 130 and 143. The job can be resumed,
as after 4.

"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the page."""
    yield "docs/exit-codes.rst", page()


def page() -> str:
    """Return every exit code with its meaning, and the more specific errors below it."""
    classes = list(_narrower(errors.PcircleError))
    codes = {error.exit_code for error in classes}
    order: list[int] = []
    while left := codes.difference(order):
        order.append(errors.worst(left))
    text = HEAD.format(precedence=", ".join(map(str, order)))
    text += f"**{errors.EXIT_OK}**\n    Success.\n"
    for code in sorted(codes):
        broad, *narrow = (error for error in classes if error.exit_code == code)
        text += f"\n**{code}**\n" + _filled(broad, "    ", "    ")
        text += "".join("\n" + _filled(error, "    - ", "      ") for error in narrow)
    return text


def _narrower(error: type[PcircleError]) -> Iterator[type[PcircleError]]:
    """Yield the subclasses of `error` in the order of definition, general before specific ones."""
    for subclass in error.__subclasses__():
        if subclass.__module__ == "pcircle.core.errors":  # tests may define others
            yield subclass
            yield from _narrower(subclass)


def _filled(error: type[PcircleError], first: str, others: str) -> str:
    """Return the docstring of `error` as one paragraph."""
    meaning = " ".join((inspect.getdoc(error) or "").split())
    return textwrap.fill(meaning, 88, initial_indent=first, subsequent_indent=others) + "\n"
