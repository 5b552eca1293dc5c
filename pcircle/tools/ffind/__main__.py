"""The command `ffind`, and `python -m pcircle.tools.ffind`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("ffind")

if __name__ == "__main__":
    sys.exit(main())
