"""Where the command `fcp` begins, and `python -m pcircle.fcp`.

Until the job listens for signals itself, Ctrl-C should just end the process:
a KeyboardInterrupt in the middle of an import has nobody to catch it, and
some extension modules don't survive it.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run fcp on the command line's arguments; returns the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pcircle.fcp.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
