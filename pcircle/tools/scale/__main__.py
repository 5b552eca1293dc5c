"""The command `python -m pcircle.scale`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("scale")

if __name__ == "__main__":
    sys.exit(main())
