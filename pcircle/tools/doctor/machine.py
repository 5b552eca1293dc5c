"""Facts about this host and process: versions, cores, memory, limits, control groups, and MPI."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pcircle import __version__
from pcircle.core.errors import REQUIRED_PACKAGES, PcircleError
from pcircle.core.optional_packages import try_out
from pcircle.fs.directories import affordable, affordable_threads
from pcircle.transport.launch import NOT_LAUNCHED, choose, launched
from pcircle.transport.start import start

if TYPE_CHECKING:
    from pcircle.transport.contract import Transport

OPTIONAL = {
    "blake3": "blake3",
    "cloudpickle": "cloudpickle",
    "matplotlib": "matplotlib",
    "pyarrow": "pyarrow",
}
_LIMITS = {
    "open_files": (resource.RLIMIT_NOFILE, ""),
    "processes": (resource.RLIMIT_NPROC, ""),
    "address_space": (resource.RLIMIT_AS, "_bytes"),
    "file_size": (resource.RLIMIT_FSIZE, "_bytes"),
}
_GROUPS = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 62  # version 1 of control groups represents "unlimited" by larger values


def software() -> Facts:
    """Return the versions of pcircle, Python, the system and the packages that pcircle uses."""
    found = {
        "pcircle": Fact(__version__),
        "python": Fact(f"{platform.python_implementation()} {platform.python_version()}"),
        "interpreter": Fact(sys.executable) if sys.executable else Fact(None, "it has no name"),
        "system": asked(lambda: platform.freedesktop_os_release()["PRETTY_NAME"]),
        "kernel": Fact(f"{os.uname().sysname} {os.uname().release}"),
        "machine": Fact(os.uname().machine),
        "libc": Fact(" ".join(platform.libc_ver()).strip() or "not glibc"),
    }
    found["file_operations"] = asked(_file_operations)
    for name, module in REQUIRED_PACKAGES.items():
        found[name] = _version(name, module)
    for name, module in OPTIONAL.items():
        version = _version(name, module)
        # The absence of an optional package is a fact, not an unknown value.
        is_missing = version.value is None and version.why == _MISSING
        found[name] = Fact("not installed (optional)") if is_missing else version
    return found


_MISSING = "not installed"


def _version(name: str, module: str) -> Fact:
    try:
        version = metadata.version(name)
        if "mpi" not in module:  # mpi4py is imported when the MPI library is loaded
            try_out(module, f"import {module}")
    except (metadata.PackageNotFoundError, ModuleNotFoundError):
        return Fact(None, _MISSING)
    except ImportError as error:
        return Fact(None, str(error))
    return Fact(version)


def _file_operations() -> Value:
    """Return whether operations on small files run as C code, and the reason if they do not."""
    from pcircle.fs import native  # imported late, so that a missing package is reported first

    return native.description()


def cores() -> Facts:
    """Return the facts about processors and the default number of processes."""
    return {
        "online": asked(os.cpu_count),
        "usable": asked(lambda: len(os.sched_getaffinity(0))),
        "default_jobs": asked(lambda: choose("auto", None, NOT_LAUNCHED).size),
        "load": asked(lambda: " ".join(f"{load:.1f}" for load in os.getloadavg())),
    }


def memory() -> Facts:
    """Return the facts about the memory of the host."""
    return {
        "total_bytes": asked(lambda: _meminfo("MemTotal")),
        "available_bytes": asked(lambda: _meminfo("MemAvailable")),
    }


def _meminfo(name: str) -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    raise LookupError(f"/proc/meminfo has no {name}")


def limits() -> Facts:
    """Return the soft and hard limits of this process, and what they permit the tools to use."""
    found = {}
    for name, (number, unit) in _LIMITS.items():
        soft, hard = resource.getrlimit(number)
        found[name + unit] = Fact(_limit(soft))
        found[f"{name}_hard{unit}"] = Fact(_limit(hard))
    found["directories_kept_open"] = asked(affordable)
    found["threads_with_descriptors"] = asked(affordable_threads)
    return found


def _limit(value: int) -> int | str:
    return "unlimited" if value == resource.RLIM_INFINITY else value


def control_groups(root: str = _GROUPS, of: str = "/proc/self/cgroup") -> Facts:
    """Return the limits of this process's control groups, including those of their ancestors."""
    try:
        with open(of, encoding="utf-8", errors="surrogateescape") as lines:
            groups = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError as error:
        return {"cores": Fact(None, f"{of}: {error.strerror}")}
    if not groups:
        return {"cores": Fact("unlimited"), "memory_bytes": Fact("unlimited")}
    folders = {kind: list(_folders(root, kind, path)) for _, kind, path in groups}
    unified = folders.get("", [])
    return {
        "version": Fact(2 if len(groups) == 1 and "" in folders else 1),
        "cores": asked(lambda: _cores(unified, _of(folders, "cpu"))),
        "memory_bytes": asked(
            lambda: _least(unified, "memory.max", _of(folders, "memory"), "memory.limit_in_bytes")
        ),
        "memory_used_bytes": asked(
            lambda: _used(unified, "memory.current", _of(folders, "memory"))
        ),
        "processes": asked(lambda: _least(unified, "pids.max", _of(folders, "pids"), "pids.max")),
    }


def _folders(root: str, kind: str, path: str) -> Iterator[str]:
    """Yield the directories of a group and its ancestors, if they are mounted."""
    top = os.path.join(root, kind.removeprefix("name=")) if kind else root
    parts = path.strip("/").split("/") if path.strip("/") else []
    # In a container, the path of the group is often not visible, but the group is mounted as root.
    for count in range(len(parts), -1, -1):
        folder = os.path.join(top, *parts[:count])
        if ".." not in parts and os.path.isdir(folder):
            yield folder


def _of(folders: dict[str, list[str]], controller: str) -> list[str]:
    return next((found for kind, found in folders.items() if controller in kind.split(",")), [])


def _least(unified: list[str], name: str, legacy: list[str], legacy_name: str) -> Value:
    found = [*_numbers(unified, name), *_numbers(legacy, legacy_name)]
    if not found and not any(map(os.listdir, [*unified, *legacy])):
        raise LookupError("no control groups are mounted here")
    return min(found) if found else "unlimited"


def _numbers(folders: list[str], name: str) -> Iterator[int]:
    for folder in folders:
        text = _read(os.path.join(folder, name))
        if text.isdecimal() and int(text) < _NO_LIMIT:
            yield int(text)


def _used(unified: list[str], name: str, legacy: list[str]) -> Value:
    for folder, file_name in [
        *((f, name) for f in unified),
        *((f, "memory.usage_in_bytes") for f in legacy),
    ]:
        text = _read(os.path.join(folder, file_name))
        if text.isdecimal():
            return int(text)
    raise LookupError("the control group does not count it")


def _cores(unified: list[str], legacy: list[str]) -> Value:
    shares = []
    for folder in unified:
        quota, _, period = _read(os.path.join(folder, "cpu.max")).partition(" ")
        if quota.isdecimal() and period.isdecimal():
            shares.append(int(quota) / int(period))
    for folder in legacy:
        quota = _read(os.path.join(folder, "cpu.cfs_quota_us"))
        period = _read(os.path.join(folder, "cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal():
            shares.append(int(quota) / int(period))
    return min(shares) if shares else "unlimited"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


# ---- launcher and MPI ----------------------------------------------------------------------------

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
    jobs = [
        f"{name} {environ[variable]}" for name, variable in _BATCH.items() if environ.get(variable)
    ]
    found = {
        "launcher": Fact(
            launch.launcher or "none", f"left: {launch.stale}" if launch.stale else ""
        ),
        "batch_job": Fact(", ".join(jobs) or "none"),
    }
    trouble = ""
    if launch.kind == "mpi":
        try:
            start(choose("auto", None, launch), lambda transport: _joined(transport, found))
        except PcircleError as error:
            trouble = str(error)
            found["ranks"] = Fact(None, trouble)
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


# ---- facts ---------------------------------------------------------------------------------------

Value: TypeAlias = bool | int | float | str | None


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value, or None with the reason in `why` if the value is unknown.

    If the value is known, `why` may contain details, such as the error with which a trial ended.
    """

    value: Value
    why: str = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.why:
            raise ValueError("a fact is unknown for a reason")


Facts: TypeAlias = dict[str, Fact]
"""Facts by name; the name of a value with a unit ends with that unit."""


def asked(ask: Callable[[], Value]) -> Fact:
    """Return the result of a call as a fact, or the reason if the call raises an exception."""
    try:
        return Fact(ask())
    except Exception as error:  # any exception, because the report must continue
        return Fact(None, reason(error))


def tried(trial: Callable[[], object]) -> Fact:
    """Return whether a trial succeeds, and the reason if it raises OSError."""
    try:
        trial()
    except OSError as error:
        return Fact(False, reason(error))
    return Fact(True)


def reason(error: Exception) -> str:
    """Return a short description of an error."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
