"""Run the program to its end and return its document."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pcircle.tools.doctor.command import DoctorReport
from tests.conftest import ROOT, Run

PROGRAM = [sys.executable, str(ROOT / "bin" / "pcircle"), "doctor"]


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of the tests, without any launcher."""
    taken = ("PMI_", "PMIX_", "OMPI_", "SLURM_", "MPI_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    return {**inherited, **changes}


def run_doctor(
    run: Run,
    *arguments: str | bytes,
    prefix: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program."""
    return run([*prefix, *PROGRAM, *arguments], env=dict(environ or environment()))


def document(done: subprocess.CompletedProcess[bytes]) -> Any:
    """Return the document on standard output, which must match its schema."""
    msgspec.json.decode(done.stdout, type=DoctorReport, strict=True)
    return msgspec.json.decode(done.stdout)


def report(
    run: Run, path: bytes, *options: str, environ: Mapping[str, str] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the document of a run on one path, and the values of that path."""
    whole = document(run_doctor(run, "--json=-", *options, path, environ=environ))
    (found,) = whole["paths"].values()
    return whole, {name: fact["value"] for name, fact in found.items()}
