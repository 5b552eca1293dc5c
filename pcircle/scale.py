"""`python -m pcircle.scale`, the name that `pcircle scale` had before."""

from __future__ import annotations

import sys

from pcircle.__main__ import main

if __name__ == "__main__":
    sys.argv.insert(1, "scale")
    sys.exit(main())
