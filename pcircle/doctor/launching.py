"""How the processes were started, and which MPI there is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pcircle.doctor.facts import Fact, Facts, Value, asked, reason
from pcircle.errors import PcircleError
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

if TYPE_CHECKING:
    from pcircle.transport.contract import Transport

_BATCH = {
    "Slurm": "SLURM_JOB_ID",
    "PBS": "PBS_JOBID",
    "LSF": "LSB_JOBID",
    "Flux": "FLUX_JOB_ID",
    "Grid Engine": "PE_HOSTFILE",
}
_DEADLINE_S = 30.0
# The same modules as here.
_LIBRARY = """
import sys
sys.path[:] = sys.argv[1:]
from pcircle.transport._mpi import library
print(*library(), sep="\\n")
"""


def launching(environ: Mapping[str, str]) -> tuple[Facts, str]:
    """What is recognised, and what is wrong with it, if anything is.

    Under a launcher MPI is started and ended, by all ranks; elsewhere its library is loaded by a
    process of its own, since that may end the one that loads it.
    """
    launch = launched()
    jobs = {name: environ[variable] for name, variable in _BATCH.items() if environ.get(variable)}
    found = {
        "launcher": Fact(
            launch.launcher or "none", f"left: {launch.stale}" if launch.stale else ""
        ),
        "batch_job": Fact(", ".join(f"{name} {job}" for name, job in jobs.items()) or "none"),
    }
    trouble = ""
    if launch.kind == "mpi":
        world: Facts = {}
        try:
            start(choose("auto", None, launch), lambda transport: _joined(transport, world))
        except PcircleError as error:
            trouble = str(error)
            world["ranks"] = Fact(None, trouble)
        found |= world
    else:
        found["local_processes"] = asked(lambda: choose("auto", None, launch).size)
        found |= _library_apart()
    return found | {"mpirun": _mpirun()}, trouble


def _joined(transport: Transport, found: Facts) -> int:
    """What a rank of a launcher sees."""
    from pcircle.transport._mpi import library

    found["ranks"] = Fact(transport.size)
    found["nodes"] = Fact(len(set(transport.nodes)))
    for name, text in zip(("mpi_library", "mpi_version"), library(), strict=True):
        found[name] = Fact(text)
    return 0


def _library_apart() -> Facts:
    """The MPI library that would be loaded under a launcher."""
    names = ("mpi_library", "mpi_version")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _LIBRARY, *sys.path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {name: Fact(None, reason(error)) for name in names}
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
        why = "no MPI library could be loaded: " + said[-1].removeprefix("RuntimeError: ")
        return {name: Fact(None, why) for name in names}
    lines = done.stdout.decode(errors="replace").splitlines()
    return {name: Fact(line) for name, line in zip(names, lines, strict=False)}


def _mpirun() -> Fact:
    """The launcher that would be found: beside the interpreter first, as in an environment."""
    beside = os.path.dirname(sys.executable or "")
    program = shutil.which("mpirun", path=beside or None) or shutil.which("mpirun")
    if program is None:
        return Fact("none")

    def version() -> Value:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DEADLINE_S,
            check=False,
        )
        lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()]
        told = next((line for line in lines if "ersion" in line), "of unknown version")
        return f"{program} ({' '.join(told.split())})"

    return asked(version)
