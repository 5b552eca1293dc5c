"""What is reported and kept when a program itself is at fault.

Of a defect of the tools a file that can be sent in; of a bug in a task of the user's own its
traceback, where he looks: on standard error, once, though every rank may have met it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pcircle.errors import Defect, package_problem
from pcircle.transport._exit import say
from pcircle.writing import write_all


def write_report(error: BaseException, doing: str) -> str:
    """Write the error with its traceback to a new file; returns a sentence that names it."""
    import platform
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    facts = f"python {platform.python_version()} on {platform.platform()}\n{sys.argv!r}\n"
    summary = f"{type(error).__name__}: {error}"
    try:
        directory = report_directory()
        os.makedirs(directory, 0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".txt", "pcircle-defect-", directory)
        try:
            whole = f"{facts}while {doing}\n\n{text}"
            write_all(descriptor, whole.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as trouble:
        return f"{summary} (no report could be written: {trouble})\n{text}"
    return f"{summary}; a report is in {path}"


def report_directory() -> str:
    """Return the directory of reports, which does not depend on the working directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "pcircle")


class Mishaps:
    """What is made of exceptions that nobody expects: a report in a file, which is named."""

    def package_problem(self, error: BaseException) -> str:
        """Return what is wrong with a required package, if that is the reason."""
        return package_problem(error)

    def explain(self, error: BaseException, doing: str) -> str:
        """The reason why the job ends, for rank 0 to tell."""
        return write_report(error, doing)

    def late(self, rank: int, reason: str, code: int) -> None:
        """A reason that came up too late for rank 0; `code` is the job's so far as is known."""
        say(f"rank {rank}: {reason}")


_MAX_DOING = 300  # characters: an item may be long
_BEGIN = "Traceback (most recent call last):\n"


class Tracebacks(Mishaps):
    """A task of the user's own is at fault: he is to see the traceback."""

    def package_problem(self, error: BaseException) -> str:
        """Return nothing: the task may import the same packages."""
        return ""

    def explain(self, error: BaseException, doing: str) -> str:
        """The traceback, below what was being done."""
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return f"exception while {_short(doing)}:\n{''.join(lines).rstrip()}"

    def late(self, rank: int, reason: str, code: int) -> None:
        """Tell of it, but not of what several ranks have met at the same time."""
        if code != Defect.exit_code:
            super().late(rank, reason, code)


def once(reasons: Sequence[str]) -> list[str]:
    """Reasons as they are told to who has written the task: of tracebacks the first, whole."""
    whole = [reason for reason in reasons if _BEGIN in reason]
    told = [reason for reason in reasons if reason not in whole]
    if whole:
        told.append(whole[0])
    if len(whole) > 1:
        ends = {reason.rpartition("\n")[2] for reason in whole}
        what = "the same" if len(ends) == 1 else "another exception"
        told.append(f"(and {what} on {len(whole) - 1} other ranks or items)")
    return told


def _short(doing: str) -> str:
    return doing if len(doing) <= _MAX_DOING else doing[:_MAX_DOING] + "..."
