"""The command `fcp`, also available as `python -m pcircle.tools.fcp`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fcp")

if __name__ == "__main__":
    sys.exit(main())
