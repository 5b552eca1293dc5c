"""The command `fchgrp`, and `python -m pcircle.fchmod.fchgrp`: see `pcircle.entry`."""

from __future__ import annotations

import sys

from pcircle.entry import command

main = command("fchmod", "fchgrp")

if __name__ == "__main__":
    sys.exit(main())
