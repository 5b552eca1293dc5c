"""The command `fmirror`, and `python -m pcircle.fmirror`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fmirror")

if __name__ == "__main__":
    sys.exit(main())
