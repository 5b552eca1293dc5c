"""The command `fdiff`, and `python -m pcircle.fdiff`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fdiff")

if __name__ == "__main__":
    sys.exit(main())
