"""`python -m tests.tools.fcp.closing ARGUMENT...`: fcp, started without any standard descriptor."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.closerange(0, 3)
    os.execv(sys.executable, [sys.executable, "-m", "pcircle.tools.fcp", *sys.argv[1:]])
