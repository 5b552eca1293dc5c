"""The command `fsum`, and `python -m pcircle.tools.fsum`: see `pcircle.cli.startup`."""

from __future__ import annotations

import sys

from pcircle.cli.startup import command

main = command("fsum")

if __name__ == "__main__":
    sys.exit(main())
