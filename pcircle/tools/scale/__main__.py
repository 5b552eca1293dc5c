"""The command `python -m pcircle.scale`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("scale")

if __name__ == "__main__":
    sys.exit(main())
