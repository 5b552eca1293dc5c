"""Detects the launcher of the processes and the MPI library."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pcircle.core.errors import PcircleError
from pcircle.tools.doctor.facts import Fact, Facts, asked, reason
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
_VERSION = re.compile(r"\d+\.\d+")
# With this sys.path the child imports the same modules as the parent.
_LIBRARY = """
import sys
sys.path[:] = sys.argv[1:]
from pcircle.transport._mpi import library
print(*library(), sep="\\n")
"""


def launching(environ: Mapping[str, str]) -> tuple[Facts, str]:
    """Return the facts about the launcher and MPI, and the problem if MPI fails to start.

    Under a launcher, all ranks start MPI and shut it down again. Otherwise a child process loads
    the library, because loading may terminate the process.
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
    found |= _mpirun()
    return found, trouble


def _joined(transport: Transport, found: Facts) -> int:
    """Collect the facts that a rank of an MPI job sees."""
    from pcircle.transport._mpi import library

    found["ranks"] = Fact(transport.size)
    found["nodes"] = Fact(len(set(transport.nodes)))
    for name, text in zip(("mpi_library", "mpi_version"), library(), strict=True):
        found[name] = Fact(text)
    return 0


def _library_apart() -> Facts:
    """Return the facts about the MPI library, loaded in a child process."""
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
        output = _printable(done.stderr).splitlines() or [f"exit code {done.returncode}"]
        why = "no MPI library could be loaded: " + output[-1].removeprefix("RuntimeError: ")
        return {name: Fact(None, why) for name in names}
    lines = _printable(done.stdout).splitlines()
    return {name: Fact(line) for name, line in zip(names, lines, strict=False)}


def _mpirun() -> dict[str, Fact]:
    """Return the path and version of the mpirun on PATH."""
    program = shutil.which("mpirun") or shutil.which("mpiexec")
    if program is None:
        return {"mpirun": Fact("none")}
    found = asked(lambda: _version_of(program))
    version = str(found.value or "")
    return {"mpirun": Fact(f"{program} ({version})") if version else found}


def _version_of(program: str) -> str:
    """Return the line of a launcher's output that has its name and version."""
    done = subprocess.run(
        [program, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_DEADLINE_S,
        check=False,
    )
    lines = [" ".join(raw.split()) for raw in _printable(done.stdout).splitlines()]
    named = [line for line in lines if _VERSION.search(line)]
    if any("HYDRA" in line for line in lines) and named:
        named[0] = f"Hydra, {named[0]}"
    return named[0] if named else "of unknown version"


def _printable(data: bytes) -> str:
    """Decode the output of another program, without the NULs that terminate C strings."""
    return data.decode(errors="replace").replace("\0", "")


def mismatch(found: Facts) -> str:
    """Return a warning if mpirun and the MPI library are of different implementations.

    Return an empty string if they match, or if either is unknown.
    """
    mpirun = str(found["mpirun"].value or "") if "mpirun" in found else ""
    library = str(found["mpi_library"].value or "") if "mpi_library" in found else ""
    program, _, version = mpirun.partition(" (")
    of_program, of_library = _make_of(version), _make_of(library)
    if not of_program or not of_library or of_program == of_library:
        return ""
    return (
        f"{program} is of {of_program}, and the MPI library that is loaded is {library}: each "
        "process would take itself for the only one; put the library's mpirun first on PATH"
    )


def _make_of(text: str) -> str:
    """Return the implementation of a library or launcher, or an empty string if it is unknown.

    Launchers can start the processes of any library of the same implementation.
    """
    if any(word in text for word in ("Open MPI", "OpenRTE", "PRRTE", "prterun")):
        return "Open MPI"
    if any(word in text for word in ("MPICH", "Hydra", "Intel", "MVAPICH")):
        return "MPICH"
    return ""
