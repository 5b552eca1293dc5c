"""How a rank's process ends when its body didn't return a code, and what it leaves behind.

The idea: an exception that leaves a rank's body has nobody above it to catch it: not in a forked
child, which must never return into its parent's code, nor under MPI, where a rank that just
unwinds leaves the others hanging.  Both ask here what to print and which code it means.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from pcircle.errors import Defect, Interrupted, PcircleError

__all__ = ["explain_escape", "flush_standard_streams", "say"]


def explain_escape(error: BaseException, rank: int) -> int:
    """Say on standard error what *error* left the body of *rank*; the exit code it stands for.

    A PcircleError is one line and its own code, an interrupt (no handler was installed yet) is
    silent, anything else is a defect with its traceback.
    """
    if isinstance(error, KeyboardInterrupt):
        return Interrupted.exit_code
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    if isinstance(error, PcircleError):
        say(f"rank {rank}: {error}")
        return error.exit_code
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(f"rank {rank}: {text.rstrip()}")
    return Defect.exit_code


def say(text: str) -> None:
    """Print a line on standard error, if anybody listens."""
    # Whether somebody does must not change how a process ends.
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)


def flush_standard_streams() -> None:
    """Write out what is buffered, as far as somebody still reads it."""
    for stream in (sys.stdout, sys.stderr):
        # A reader that went away (OSError) or a stream that is closed or None must not keep an
        # ending process from ending.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
