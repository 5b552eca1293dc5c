"""The command `fls`, and `python -m pcircle.fls`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fls")

if __name__ == "__main__":
    sys.exit(main())
