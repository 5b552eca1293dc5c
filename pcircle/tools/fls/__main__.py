"""The `fls` command, also available as `python -m pcircle.tools.fls`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command


def main() -> int:
    """Run the command and return its exit code."""
    return command("fls")()


if __name__ == "__main__":
    sys.exit(main())
