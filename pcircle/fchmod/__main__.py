"""The command `fchmod`, and `python -m pcircle.fchmod`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fchmod")

if __name__ == "__main__":
    sys.exit(main())
