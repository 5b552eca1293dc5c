"""The command `fmirror`, also available as `python -m pcircle.tools.fmirror`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fmirror")

if __name__ == "__main__":
    sys.exit(main())
