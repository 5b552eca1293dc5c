"""Errors that end a job, one class for each cause, and checks of internal invariants.

An exit code is a promise to the script that reads it, so each is defined in one place. The
``exit_code`` of a class is the exit code of the process, and the docstring explains that code to
users: ``docs/exit-codes.rst`` is generated from this module, and a test compares the two.

The failure of an entry is not an exception. A file that could not be copied is data, counted and
returned by the code that processed it; only errors of the *job* are raised.

The checks raise `Inconsistent` if an invariant is violated. The job then ends as a defect, with a
report. `python -O` removes `assert`, but not these checks.

When this module is imported, it imports nothing from the package.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


__all__ = [
    "EXIT_OK",
    "REQUIRED_PACKAGES",
    "Defect",
    "EntriesFailed",
    "Inconsistent",
    "IntegrityError",
    "Interrupted",
    "NoSpace",
    "PcircleError",
    "RankLost",
    "StoppedEarly",
    "Terminated",
    "UsageError",
    "error_of",
    "operand_error",
    "package_problem",
    "require",
    "require_that",
    "require_type",
    "worst",
]

EXIT_OK = 0

_REQUIRED = """\
lru-dict lru
mpi4py mpi4py
msgspec msgspec
numpy numpy
rich rich
xxhash xxhash"""
REQUIRED_PACKAGES = {
    package: module
    for package, _, module in (line.partition(" ") for line in _REQUIRED.splitlines())
}
"""The packages that pip installs with this one, mapped to their modules."""


class PcircleError(Exception):
    """The job could not do what was requested.

    The base class of every error that ends a job. ``str(error)`` is the message for the user. It is
    printable, because names in it were escaped where the error was raised.
    """

    exit_code: ClassVar[int] = 70
    report: Any = None
    """The report on the work that was done before the job stopped, if the job was started from
    Python; otherwise None.
    """


class UsageError(PcircleError):
    """The command was refused.

    An option was invalid, for example, or a source was missing or would have been copied into
    itself. Nothing was changed.
    """

    exit_code: ClassVar[int] = 2


class EntriesFailed(PcircleError):
    """The run finished, but some entries failed.

    Each of them was reported with the reason. All other entries are complete.
    """

    exit_code: ClassVar[int] = 1


class IntegrityError(PcircleError):
    """Verification or a check found content that differs.

    Each such entry was reported.
    """

    exit_code: ClassVar[int] = 3


class StoppedEarly(PcircleError):
    """The job stopped before it was complete, and can be resumed.

    The message gives the reason. Completed work is kept, and so is the checkpoint if there is one.
    """

    exit_code: ClassVar[int] = 4


class NoSpace(StoppedEarly):
    """The destination cannot be written to.

    It is full, over its quota or read-only, as a probe write has confirmed. Tools that remove or
    change entries stop if all PATHs are on read-only file systems.
    """


class RankLost(StoppedEarly):
    """A process of the job died.

    It was killed or lost its connection. The job could not continue, because the work of that
    process cannot be accounted for.
    """

    @classmethod
    def of(cls, rank: int, cause: str = "") -> RankLost:
        return cls(f"rank {rank} was lost{': ' * bool(cause)}{cause}")

    @staticmethod
    def rank_in(reason: str) -> int | None:
        """Return the rank that `reason` reports as lost, or None."""
        word, _, after_word = reason.partition(" ")
        number, _, how = after_word.partition(" ")
        is_rank_lost = word == "rank" and number.isdigit() and how.startswith("was lost")
        return int(number) if is_rank_lost else None

    @classmethod
    def only(cls, reasons: Sequence[str]) -> tuple[int, ...]:
        """Return the lost ranks if all reasons report a lost rank, otherwise an empty tuple."""
        lost = [rank for why in reasons if (rank := cls.rank_in(why)) is not None]
        return tuple(lost) if len(lost) == len(reasons) else ()


class Defect(PcircleError):
    """Internal error.

    Something happened that should never happen. The message names a report file with the details:
    ``pcircle-defect-*.txt`` in ``~/.local/state/pcircle``, or in ``$XDG_STATE_HOME/pcircle`` if
    that variable is set. If no report can be written, or if the processes cannot be connected, the
    message contains the traceback.
    """

    exit_code: ClassVar[int] = 70


class Interrupted(PcircleError):
    """Interrupted by SIGINT.

    All ranks stopped cleanly, and the checkpoint is kept if there is one.
    """

    exit_code: ClassVar[int] = 130


class Terminated(PcircleError):
    """Ended by SIGTERM.

    All ranks stopped cleanly, and the checkpoint is kept if there is one.
    """

    exit_code: ClassVar[int] = 143


# If the ranks or phases of a job end with different codes, the code that is listed first counts.
# Usage errors come last because they are raised before other errors can occur.
_PRECEDENCE = (
    Defect.exit_code,
    Terminated.exit_code,
    Interrupted.exit_code,
    StoppedEarly.exit_code,
    IntegrityError.exit_code,
    EntriesFailed.exit_code,
    UsageError.exit_code,
    EXIT_OK,
)


def worst(codes: Iterable[int]) -> int:
    """Return the most severe of the exit codes of a job's parts; 0 if there are none.

    A code that is not defined here was not intended: the process was killed from outside, or a
    library called exit. It counts as a defect, never as success.
    """
    seen = set(codes)
    if not seen.issubset(_PRECEDENCE):
        return Defect.exit_code
    return next((code for code in _PRECEDENCE if code in seen), EXIT_OK)


_OF_FILE_SYSTEMS = frozenset(
    {errno.EIO, errno.ENOTCONN, errno.EREMOTEIO, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN}
)


def operand_error(text: str, error: OSError) -> PcircleError:
    """Return the error that ends a job if an operand cannot be looked up.

    A wrong operand is a usage error. A failing file system is not an error in the command, so the
    error is that of a failed entry.
    """
    return (EntriesFailed if error.errno in _OF_FILE_SYSTEMS else UsageError)(text)


def error_of(code: int) -> type[PcircleError]:
    """Return the error class for an exit code; `Defect` if no other class has it."""
    kinds: tuple[type[PcircleError], ...] = (
        Terminated,
        Interrupted,
        StoppedEarly,
        IntegrityError,
        EntriesFailed,
        UsageError,
    )
    return next((kind for kind in kinds if kind.exit_code == code), Defect)


def package_problem(error: BaseException) -> str:
    """Describe the problem if an import failed because of a required package, otherwise return "".

    This includes a module of any package that cannot be read. All packages that are not installed
    are named at once.
    """
    if not isinstance(error, ImportError):
        return ""
    from importlib.util import find_spec

    from pcircle.core.import_finder import UnreadableModuleError  # rarely needed

    if isinstance(error, UnreadableModuleError):
        return str(error)

    def is_absent(module: str) -> bool:
        try:
            return find_spec(module) is None
        except ImportError:  # some finders raise it for an absent module
            return True

    modules = set(_modules_of(error))
    blamed = [package for package, module in REQUIRED_PACKAGES.items() if module in modules]
    if not blamed:
        return ""
    absent = [package for package, module in REQUIRED_PACKAGES.items() if is_absent(module)]
    if absent:
        names = " ".join(absent)
        verb = "is" if len(absent) == 1 else "are"
        return f"{names.replace(' ', ', ')} {verb} not installed: pip install {names}"
    reason = (str(error).splitlines() or [""])[0]
    return f"{blamed[0]} cannot be imported ({reason}): pip install --force-reinstall {blamed[0]}"


def _modules_of(error: ImportError) -> Iterator[str]:
    """Yield the top-level module that could not be imported, and those on the error's traceback."""
    if error.name:
        yield error.name.partition(".")[0]
    trace = error.__traceback__
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        trace = trace.tb_next


# ---- checks of invariants ------------------------------------------------------------------------

T = TypeVar("T")


class Inconsistent(Exception):
    """An internal invariant is violated."""


def require_that(holds: bool, what: str) -> None:
    """Raise Inconsistent with the message `what` unless `holds` is true."""
    if not holds:
        raise Inconsistent(what)


def require(value: T | None) -> T:
    """Return the value; raise Inconsistent if it is None."""
    if value is None:
        raise Inconsistent("a value is missing")
    return value


def require_type(kind: type[T], value: object) -> T:
    """Return the value; raise Inconsistent if it is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise Inconsistent(f"found {type(value).__name__} instead of {kind.__name__}")
    return value
