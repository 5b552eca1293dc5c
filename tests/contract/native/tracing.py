"""The system calls of a program that uses the C module or its equivalent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.programs import required
from tests.strace import read_calls


def traced(program: str, arguments: Sequence[Path], calls: str, native: str) -> list[str]:
    """Run a program and return its calls between its writes of "begin" and "end" to descriptor 2.

    `calls` are their names, and `native` is the value of ``PCIRCLE_NATIVE``.
    """
    log = arguments[-1].parent / f"calls-{native}"
    command = [required("strace"), "-f", "-o", str(log), "-e", f"trace=write,{calls}"]
    done = subprocess.run(
        [*command, sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"PCIRCLE_NATIVE": native},
        check=True,
        capture_output=True,
    )
    assert done.stderr == b"beginend"
    lines = [call.text for call in read_calls(log)]
    return lines[
        lines.index('write(2, "begin", 5) = 5') + 1 : lines.index('write(2, "end", 3) = 3')
    ]
