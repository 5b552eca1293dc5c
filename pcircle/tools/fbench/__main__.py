"""The command `fbench`, also available as `python -m pcircle.tools.fbench`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fbench")

if __name__ == "__main__":
    sys.exit(main())
