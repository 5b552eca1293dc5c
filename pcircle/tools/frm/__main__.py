"""The command `frm`, and `python -m pcircle.tools.frm`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("frm")

if __name__ == "__main__":
    sys.exit(main())
