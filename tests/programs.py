"""Programs that a machine may lack, which tests then skip without."""

from __future__ import annotations

import shutil

import pytest


def required(program: str) -> str:
    """Return the path of *program*; skip the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found
