"""The `frm` command, also available as `python -m pcircle.tools.frm`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command


def main() -> int:
    """Run the command and return its exit code."""
    return command("frm")()


if __name__ == "__main__":
    sys.exit(main())
