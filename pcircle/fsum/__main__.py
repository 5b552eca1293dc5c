"""The command `fsum`, and `python -m pcircle.fsum`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import enter


def _run() -> int:
    from pcircle.fsum.cli import main

    return main()


def main() -> int:
    """Run fsum on the command line's arguments; ends the process, or returns its exit code."""
    return enter(_run)


if __name__ == "__main__":
    sys.exit(main())
