"""How names are shown; a leaf of the package has it, since what is below words reasons with it."""

from __future__ import annotations

from pcircle.core.names import show

__all__ = ["show"]
