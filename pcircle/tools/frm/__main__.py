"""The command `frm`, also available as `python -m pcircle.tools.frm`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("frm")

if __name__ == "__main__":
    sys.exit(main())
