"""Where the command `fbench` begins and ends, and `python -m pcircle.fbench`.

Until the job listens for signals itself, Ctrl-C should just end the process:
a KeyboardInterrupt in the middle of an import has nobody to catch it, and
some extension modules don't survive it.

At the end everything is closed and written, and the process ends at once: to
take the interpreter apart object by object would cost a fifth of the time of
a copy of three files. Only under a launcher it is done, because MPI libraries
have last words of their own.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Run fbench on the command line's arguments; ends the process, or returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pcircle.fbench.cli import main as run
    from pcircle.transport._exit import flush_standard_streams
    from pcircle.transport.launch import detect

    code = run()
    if detect(os.environ).kind == "none":
        flush_standard_streams()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
