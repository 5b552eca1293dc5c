"""The command `fls`, also available as `python -m pcircle.tools.fls`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fls")

if __name__ == "__main__":
    sys.exit(main())
