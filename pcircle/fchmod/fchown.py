"""The command `fchown`, and `python -m pcircle.fchmod.fchown`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fchmod", "fchown")

if __name__ == "__main__":
    sys.exit(main())
