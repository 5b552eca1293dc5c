"""The command `frm`, and `python -m pcircle.frm`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("frm")

if __name__ == "__main__":
    sys.exit(main())
