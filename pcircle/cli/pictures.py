"""Draws pictures with matplotlib, an optional package (`pip install 'pcircle[plot]'`).

The package is tested before the work begins, and imported when the picture is drawn.
"""

from __future__ import annotations

import io
import os
import warnings
from importlib import import_module
from typing import Any

from pcircle.cli import json_output as jsonout
from pcircle.core.errors import UsageError
from pcircle.core.optional_packages import try_out

ENDINGS = (".png", ".svg", ".pdf")
_DPI = 110
# Draws text and lines in all formats, because each of them uses compiled code.
_TRIAL = f"""
import io
from matplotlib.figure import Figure
for ending in {ENDINGS}:
    figure = Figure(figsize=(1, 1), layout="constrained")
    figure.subplots().plot([0, 1], label="text")
    figure.savefig(io.BytesIO(), format=ending[1:])
"""


def check(path: str) -> None:
    """Raise UsageError, before any work, if a picture could not be drawn at the end."""
    if os.path.splitext(path)[1].lower() not in ENDINGS:
        raise UsageError(f"--plot: expected a FILE that ends with one of {', '.join(ENDINGS)}")
    try:
        try_out("matplotlib", _TRIAL)
    except ModuleNotFoundError:
        raise UsageError("--plot requires matplotlib: pip install 'pcircle[plot]'") from None
    except ImportError as error:
        raise UsageError(f"--plot: {error}") from None


def new_figure(size_inches: tuple[float, float]) -> Any:
    """Return an empty figure of matplotlib."""
    return import_module("matplotlib.figure").Figure(figsize=size_inches, layout="constrained")


def save(figure: Any, path: str) -> None:
    """Draw a figure into a file. Raises OSError."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # The warnings are about characters in names that the font lacks.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(picture, format=os.path.splitext(path)[1][1:].lower(), dpi=_DPI)
    jsonout.put(picture.getvalue(), path)
