"""The command `fsum`, and `python -m pcircle.fsum`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fsum")

if __name__ == "__main__":
    sys.exit(main())
