"""`python -m pcircle.scale`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("scale")

if __name__ == "__main__":
    sys.exit(main())
