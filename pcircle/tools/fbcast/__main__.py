"""The command `fbcast`, also available as `python -m pcircle.tools.fbcast`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fbcast")

if __name__ == "__main__":
    sys.exit(main())
