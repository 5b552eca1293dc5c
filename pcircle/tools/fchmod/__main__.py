"""The commands `fchmod`, which is also `python -m pcircle.tools.fchmod`, `fchown` and `fchgrp`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command


def main() -> int:
    """Run `fchmod` and return its exit code."""
    return command("fchmod")()


def fchown() -> int:
    """Run `fchown` and return its exit code."""
    return command("fchmod", "fchown")()


def fchgrp() -> int:
    """Run `fchgrp` and return its exit code."""
    return command("fchmod", "fchgrp")()


if __name__ == "__main__":
    sys.exit(main())
