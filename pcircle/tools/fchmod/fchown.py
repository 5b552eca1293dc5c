"""The command `fchown`, also available as `python -m pcircle.tools.fchmod.fchown`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fchmod", "fchown")

if __name__ == "__main__":
    sys.exit(main())
