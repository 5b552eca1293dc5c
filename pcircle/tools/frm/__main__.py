"""The command `frm`, also available as `python -m pcircle.tools.frm`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("frm")

if __name__ == "__main__":
    sys.exit(main())
