"""`python -m pcircle.scale`: the model of the engine at scale, see `pcircle.tools.scale`."""

from __future__ import annotations

import sys

from pcircle.tools.scale.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
