"""The `fcp` command, also available as `python -m pcircle.tools.fcp`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command


def main() -> int:
    """Run the command and return its exit code."""
    return command("fcp")()


if __name__ == "__main__":
    sys.exit(main())
