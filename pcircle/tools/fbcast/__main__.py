"""The `fbcast` command, also available as `python -m pcircle.tools.fbcast`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command


def main() -> int:
    """Run the command and return its exit code."""
    return command("fbcast")()


if __name__ == "__main__":
    sys.exit(main())
