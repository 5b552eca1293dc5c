"""``python -m tests.sanitize``: the contract of the C module under sanitizers.

A copy of the package and of the tests gets a module that is built with AddressSanitizer and
UndefinedBehaviorSanitizer, and runs `tests/contract/native`. Words behind the command go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_FLAGS = [
    *("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC"),
]
# Python keeps memory until it exits. Freed memory must be returned, or memory seems to grow.
_OPTIONS = "detect_leaks=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0"


def _copied(top: Path) -> Path:
    """Copy the files that the tests need, without a compiled module."""
    for name in ("pcircle", "tests"):
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / name, top / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", top)
    return top / "pcircle" / "fs" / "native"


def main(arguments: list[str]) -> int:
    """Build the module and run the tests; return the exit code."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        print(f"{compiler}: not found", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="sanitize-") as folder:
        native = _copied(Path(folder))
        include = f"-I{sysconfig.get_path('include')}"
        built = [str(native / "_native.c"), "-o", str(native / "_native.abi3.so")]
        subprocess.run([compiler, *_FLAGS, include, *built], check=True)
        asked = [compiler, "-print-file-name=libasan.so"]
        library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        environment = {
            **os.environ,
            "ASAN_OPTIONS": _OPTIONS,
            "LD_PRELOAD": library,
            "PCIRCLE_REQUIRE_NATIVE": "1",
            "PYTHONPATH": folder,
        }
        tests = [sys.executable, "-m", "pytest", "-q", "tests/contract/native", *arguments]
        return subprocess.run(tests, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
