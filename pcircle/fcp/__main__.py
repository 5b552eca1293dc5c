"""The command `fcp`, and `python -m pcircle.fcp`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fcp")

if __name__ == "__main__":
    sys.exit(main())
