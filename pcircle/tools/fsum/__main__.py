"""The command `fsum`, also available as `python -m pcircle.tools.fsum`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fsum")

if __name__ == "__main__":
    sys.exit(main())
