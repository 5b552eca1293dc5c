"""pcircle: parallel file tools on a work-stealing engine.

Importing the package itself imports nothing of it: a tool's start-up pays only for what that
tool uses.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "1.0.0.dev0"
