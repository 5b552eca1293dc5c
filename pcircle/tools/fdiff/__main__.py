"""The command `fdiff`, also available as `python -m pcircle.tools.fdiff`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fdiff")

if __name__ == "__main__":
    sys.exit(main())
