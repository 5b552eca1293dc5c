"""Run a few lines without privileges, because root passes checks that the tests must see fail.

The lines run in a separate process, in a folder that they can use although its parents may be
closed to them, because it is their current directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import Run

NOBODY = 65534

# Imports come first: the checkout may be inaccessible to other users.
_BEGIN = """
import errno, os, stat, sys
import json, locale, pcircle.tools.common.copy_program, pcircle.transport._local
from pcircle.ops.copy.entry import target
from pcircle.tools.fcp import cli
from pcircle.fs import directories, scan
from pcircle.fs.attributes import metadata
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({nobody})
    os.setuid({nobody})
"""


def run_unprivileged(run: Run, program: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run *program* in *folder*, which is chowned to its user."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    whole = _BEGIN.format(nobody=NOBODY) + program
    return run([sys.executable, "-c", whole], cwd=folder)
