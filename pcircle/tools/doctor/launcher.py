"""Examines paths in child processes, and collects facts about the launcher and the MPI library.

A child process examines a path, so that a hanging file system does not block the report. The child
removes its scratch directory before it exits. If a signal kills the child, the parent removes the
directory. If the parent ends first, the child is terminated.
"""

from __future__ import annotations

import io
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from pcircle.core.errors import PcircleError
from pcircle.core.writing import write_all
from pcircle.tools.doctor import places
from pcircle.tools.doctor.machine import Fact, Facts, asked, reason
from pcircle.transport._exit import signal_on_parent_exit
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

if TYPE_CHECKING:
    from pcircle.transport.contract import Transport

_STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class LaunchMessage(msgspec.Struct, omit_defaults=True):
    """A message from the child, sent as a line of JSON, with its directory, facts or a problem."""

    place: bytes = b""
    known: Facts = {}
    possible: Facts = {}
    trouble: str = ""


def examined(path: bytes, *, trials: bool, deadline_s: float) -> Facts:
    """Return the facts about a path.

    If the child does not finish within `deadline_s`, return the facts that it has sent so far, and
    the problem.
    """
    read_fd, write_fd = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(read_fd)
        _send_facts(parent, path, write_fd, trials=trials)
    os.close(write_fd)
    with io.FileIO(read_fd) as reader:
        data, in_time = _read(reader, time.monotonic() + deadline_s)
    # The last line may be incomplete, so it is not decoded.
    messages = [msgspec.json.decode(line, type=LaunchMessage) for line in data.split(b"\n")[:-1]]
    if not in_time:
        os.kill(child, signal.SIGTERM)
        messages.append(
            LaunchMessage(trouble=f"no response within {deadline_s:g} s: the file system may hang")
        )
    else:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            for message in messages:
                if message.place:
                    with suppress(OSError):
                        places.remove(message.place)
            name = signal.Signals(os.WTERMSIG(status)).name
            messages.append(
                LaunchMessage(trouble=f"the process that examined it was killed by {name}")
            )
    return _together(messages, trials=trials)


def _together(messages: list[LaunchMessage], *, trials: bool) -> Facts:
    found: Facts = {}
    for message in messages:
        found |= message.known | message.possible
    trouble = next((message.trouble for message in messages if message.trouble), "")
    if trouble or not trials:
        found["trials"] = Fact(None, trouble or "--no-trials")
    return found


def _send_facts(parent: int, path: bytes, writer: int, *, trials: bool) -> NoReturn:
    """Examine the path in the child, send the facts to the parent, and exit."""

    def send(message: LaunchMessage) -> None:
        write_all(writer, msgspec.json.encode(message) + b"\n")

    for number in _STOP_SIGNALS:
        signal.signal(number, _stop)
    try:
        if not signal_on_parent_exit(parent, signal.SIGTERM):
            raise SystemExit
        send(LaunchMessage(known=places.known(path)))
        if trials:
            send(
                LaunchMessage(
                    possible=places.possible(path, lambda place: send(LaunchMessage(place=place)))
                )
            )
    except OSError as error:
        send(LaunchMessage(trouble=reason(error)))
    except Exception as error:
        send(LaunchMessage(trouble=f"{type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit after a signal; ignore further signals, so that the cleanup is not interrupted."""
    for ignored in _STOP_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise SystemExit


def _read(reader: io.FileIO, ends_s: float) -> tuple[bytes, bool]:
    """Read until the end of file or `ends_s`; return the data, and whether the end was reached."""
    data = b""
    while (left_s := ends_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            block = reader.read(1 << 16)
            if not block:
                return data, True
            data += block
    return data, False


_BATCH = {
    "Slurm": "SLURM_JOB_ID",
    "PBS": "PBS_JOBID",
    "LSF": "LSB_JOBID",
    "Flux": "FLUX_JOB_ID",
    "Grid Engine": "PE_HOSTFILE",
}
_DEADLINE_S = 30.0
_VERSION = re.compile(r"\d+\.\d+")
# The child receives the sys.path of the parent, so that it imports the same modules.
_LIBRARY = """
import sys
sys.path[:] = sys.argv[1:]
from pcircle.transport._mpi import library
print(*library(), sep="\\n")
"""


def launching(environ: Mapping[str, str]) -> tuple[Facts, str]:
    """Return the facts about the launcher and MPI, and the problem if MPI cannot be started.

    Under an MPI launcher, all ranks start MPI and shut it down again. Otherwise a child process
    loads the library, because loading may terminate the process.
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
    """Store the facts that are known to a rank of an MPI job, and return the exit code."""
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
    """Return the path and version of the mpirun or mpiexec on PATH."""
    program = shutil.which("mpirun") or shutil.which("mpiexec")
    if program is None:
        return {"mpirun": Fact("none")}
    found = asked(lambda: _version_of(program))
    version = str(found.value or "")
    return {"mpirun": Fact(f"{program} ({version})") if version else found}


def _version_of(program: str) -> str:
    """Return the first line with a version number that the launcher prints.

    The line is prefixed with Hydra's name if the launcher is Hydra. If there is no such line,
    return "of unknown version".
    """
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
    """Return a warning if mpirun and the MPI library belong to different implementations.

    Return an empty string if they match or if either is unknown.
    """
    mpirun = str(found["mpirun"].value or "") if "mpirun" in found else ""
    library = str(found["mpi_library"].value or "") if "mpi_library" in found else ""
    program, _, version = mpirun.partition(" (")
    of_program, of_library = _make_of(version), _make_of(library)
    if not of_program or not of_library or of_program == of_library:
        return ""
    return (
        f"{program} belongs to {of_program}, but the MPI library that is loaded is {library}: each "
        "process would believe that it is the only one; put the library's mpirun first in PATH"
    )


def _make_of(text: str) -> str:
    """Return the implementation of a library or launcher, or an empty string if it is unknown.

    A derivative counts as the library that it derives from (Intel MPI as MPICH), because their
    launchers are interchangeable.
    """
    if any(word in text for word in ("Open MPI", "OpenRTE", "PRRTE", "prterun")):
        return "Open MPI"
    if any(word in text for word in ("MPICH", "Hydra", "Intel", "MVAPICH")):
        return "MPICH"
    return ""
