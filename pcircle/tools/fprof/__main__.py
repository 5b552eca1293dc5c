"""The command `fprof`, also available as `python -m pcircle.tools.fprof`."""

from __future__ import annotations

import sys
from typing import Final

from pcircle.cli.startup import command

main: Final = command("fprof")

if __name__ == "__main__":
    sys.exit(main())
