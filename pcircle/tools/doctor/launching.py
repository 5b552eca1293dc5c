"""How the processes were started, and which MPI there is."""

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
    found |= _mpirun()
    return found, trouble


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
        said = _printable(done.stderr).splitlines() or [f"exit code {done.returncode}"]
        why = "no MPI library could be loaded: " + said[-1].removeprefix("RuntimeError: ")
        return {name: Fact(None, why) for name in names}
    lines = _printable(done.stdout).splitlines()
    return {name: Fact(line) for name, line in zip(names, lines, strict=False)}


def _mpirun() -> dict[str, Fact]:
    """The launcher that a shell finds, and the make of MPI that it belongs to."""
    program = shutil.which("mpirun") or shutil.which("mpiexec")
    if program is None:
        return {"mpirun": Fact("none")}
    found = asked(lambda: _version_of(program))
    version = str(found.value or "")
    return {"mpirun": Fact(f"{program} ({version})") if version else found}


def _version_of(program: str) -> str:
    """Return the lines of a launcher's answer that have its make and version."""
    done = subprocess.run(
        [program, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_DEADLINE_S,
        check=False,
    )
    lines = [" ".join(each.split()) for each in _printable(done.stdout).splitlines()]
    named = [line for line in lines if _VERSION.search(line)]
    if any("HYDRA" in line for line in lines) and named:
        named[0] = f"Hydra, {named[0]}"
    return named[0] if named else "of unknown version"


def _printable(data: bytes) -> str:
    """Decode what another program or library said, without the NULs that end strings of C."""
    return data.decode(errors="replace").replace("\0", "")


def mismatch(found: Facts) -> str:
    """Return what is wrong if mpirun is not of the library's make; nothing if that is not known."""
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
    """Return the family of a library or launcher: those of one start each other's processes."""
    if any(word in text for word in ("Open MPI", "OpenRTE", "PRRTE", "prterun")):
        return "Open MPI"
    if any(word in text for word in ("MPICH", "Hydra", "Intel", "MVAPICH")):
        return "MPICH"
    return ""
