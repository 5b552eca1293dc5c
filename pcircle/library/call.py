"""A call of a tool as a function: its arguments, its streams, its result and its errors.

A call runs the command itself, with keyword arguments as options, so a function and its command
cannot differ. The command writes to a `Call` instead of the standard streams, and hands over the
object from which it would write its JSON document.

Under MPI all ranks make the same call. Only rank 0 has the result, so it is broadcast at the end:
all ranks return the same report, or raise the same error.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import IO, Any, NamedTuple, Protocol, TextIO, cast

from pcircle.cli.arguments import near
from pcircle.core.errors import (
    EXIT_OK,
    EntriesFailed,
    IntegrityError,
    Interrupted,
    PcircleError,
    error_of,
    require,
)
from pcircle.core.writing import CALLER
from pcircle.tools.commands import find_tool

_POLL_S = 0.05
_COMPLETE = (EXIT_OK, EntriesFailed.exit_code, IntegrityError.exit_code)
# Options that have a meaning only for a command.
_OF_COMMANDS = frozenset(
    ("h", "help", "interval", "op_timeout", "quiet", "stats", "syslog", "verbose", "version")
)
# Keyword arguments that are not options.
_OF_CALLS = ("cancel", "messages", "progress", "stdout")


class Function(NamedTuple):
    """A public function: the tool that it runs, and the options of the tool that it lacks."""

    tool: str
    without: tuple[str, ...] = ()


_FORMATS = (
    *("classify", "color", "g", "human_readable", "hyperlink", "inode", "l", "numeric_uid_gid"),
    *("o", "size", "time_style", "total"),
)
FUNCTIONS = {
    "broadcast": Function("fbcast"),
    "change": Function("fchmod"),
    "check": Function("fsum", ("check", "diff", "force", "format", "output", "rot", "update")),
    "compare": Function("fdiff"),
    "copy": Function("fcp", ("target_directory",)),
    "entries": Function("fls", _FORMATS),
    "find": Function("ffind"),
    "mirror": Function("fmirror"),
    "profile": Function("fprof", ("diff", "merge")),
    "remove": Function("frm", ("I", "i")),
    "sign": Function("fsum", ("check", "diff", "quick", "rot", "strict")),
}


class Cancel(Protocol):
    """A request to stop a job, such as a `threading.Event`. It is polled while the job runs."""

    def is_set(self) -> bool:
        """Return whether the job must stop."""
        ...


class Call:
    """A call of a tool, which receives what the command would print.

    `messages` receives each line of standard error, `stdout` the bytes of standard output, and
    `progress` views of the job. An exception of these functions stops the job, and then leaves the
    call. Implements `pcircle.core.writing.Caller`.
    """

    def __init__(
        self,
        *,
        messages: Callable[[str], object] | None = None,
        stdout: Callable[[bytes], object] | None = None,
        progress: Callable[[Any], object] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self.report: Any = None
        self.signal: int | None = None
        self.error: BaseException | None = None
        self.last_message = ""
        self.has_progress: bool = progress is not None
        self.output: TextIO = io.TextIOWrapper(
            cast(IO[bytes], _Output(self, stdout)), "utf-8", write_through=True
        )
        self.errors: TextIO = cast(TextIO, _Messages(self, messages))
        self._progress = progress
        self._cancel = cancel
        self._stop: Callable[[], None] | None = None

    def show(self, view: Any) -> None:
        self.pass_on(self._progress, view)

    def pass_on(self, function: Callable[[Any], object] | None, value: object) -> None:
        """Call a function of the program, unless an earlier call has failed."""
        if function is None or self.error is not None:
            return
        try:
            function(value)
        except BaseException as error:
            self.error = error
            if self._stop is not None:
                self._stop()

    def watch(self, stop: Callable[[], None]) -> Callable[[], None]:
        self._stop = stop
        cancel = self._cancel
        if self.error is not None or (cancel is not None and cancel.is_set()):
            stop()
        if cancel is None:
            return self._unwatch
        ended = threading.Event()

        def poll() -> None:
            while not ended.wait(_POLL_S):
                if cancel.is_set():
                    return stop()

        # It starts after local ranks have been forked, which requires a single thread.
        thread = threading.Thread(target=poll, name="pcircle-cancel", daemon=True)
        thread.start()

        def end() -> None:
            self._unwatch()
            ended.set()
            thread.join()

        return end

    def _unwatch(self) -> None:
        self._stop = None


class _Output(io.RawIOBase):
    """The standard output of a call."""

    def __init__(self, call: Call, receive: Callable[[bytes], object] | None) -> None:
        super().__init__()
        self._call = call
        self._receive = receive

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._call.pass_on(self._receive, bytes(data))
        return len(data)


class _Messages(io.TextIOBase):
    """The standard error of a call, which passes on whole lines."""

    def __init__(self, call: Call, receive: Callable[[str], object] | None) -> None:
        super().__init__()
        self._call = call
        self._receive = receive
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._call.last_message = text.rstrip("\n") or self._call.last_message
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._call.pass_on(self._receive, line)
        return len(text)


# ---- arguments -----------------------------------------------------------------------------------


def options_of(function: str) -> dict[str, tuple[str, Any]]:
    """Return the options of a function by keyword: an option string, and the parser's action.

    An option has its long names, with underscores, or else its letter.
    """
    tool, without = FUNCTIONS[function]
    refused = {*_OF_COMMANDS, *_OF_CALLS, *without}
    return {name: found for name, found in _all_options(tool).items() if name not in refused}


def _all_options(tool: str) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for action in require(find_tool(tool)).built()._actions:
        strings = action.option_strings
        for name in [name for name in strings if name.startswith("--")] or strings:
            keyword = keyword_of(name)
            if keyword.isidentifier():
                found[keyword] = name, action
    return found


def keyword_of(option: str) -> str:
    """Return the keyword argument for an option: `--skip-same` is `skip_same`, `--in` is `in_`."""
    name = option.lstrip("-").replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


def words_of(function: str, options: Mapping[str, object]) -> list[str]:
    """Return the keyword arguments of a function as words of the command line of its tool.

    True becomes an option without a value, False and None are omitted, and a list repeats the
    option. Raises TypeError for an unknown keyword, and for a value of the wrong type.
    """
    known = options_of(function)
    words = []
    for keyword, value in options.items():
        if keyword not in known:
            tool = FUNCTIONS[function].tool
            if keyword in _all_options(tool):
                raise TypeError(f"{function}() takes no '{keyword}': it is for the command {tool}")
            similar = _similar(keyword, (*known, *_OF_CALLS))
            hint = f"; did you mean {similar}?" if similar else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'{hint}")
        option, action = known[keyword]
        for item in value if isinstance(value, list | tuple) else (value,):
            words += _words(option, action, item, f"{function}(): '{keyword}'")
    return words


def _similar(keyword: str, known: Iterable[str]) -> str:
    """Return the keywords that were probably meant, as text."""
    options = {f"--{name.replace('_', '-')}": name for name in known}
    found = near(f"--{keyword.replace('_', '-')}", sorted(options))
    return " or ".join(f"'{options[option]}'" for option in found)


def _words(option: str, action: Any, value: object, where: str) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if action.nargs == 0:
        raise TypeError(f"{where} must be True or False, not {value!r}")
    text = text_of(value, where)
    return [f"{option}={text}"] if option.startswith("--") else [f"{option}{text}"]


def path_of(value: object, where: str) -> str:
    """Return a path as text. Raises TypeError, also for a number, which could be a descriptor."""
    if isinstance(value, str | bytes | os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{where} must be text or bytes, not {type(value).__name__}")


def text_of(value: object, where: str) -> str:
    """Return a path, a number or a text as a word. Raises TypeError."""
    if isinstance(value, str | bytes | os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"{where} must be text, a path or a number, not {type(value).__name__}")


# ---- the run -------------------------------------------------------------------------------------


def run(
    function: str,
    operands: Iterable[object],
    options: Mapping[str, object],
    words: Sequence[str] = (),
) -> Any:
    """Run the tool of the public function of this name; return its report.

    `words` are added to the command line. Raises TypeError for invalid arguments, and the
    `PcircleError` of the exit code if the job was refused or did not complete.
    """
    given = dict(options)
    own: dict[str, Any] = {name: given.pop(name, None) for name in _OF_CALLS}
    paths = [path_of(operand, f"{function}(): a path") for operand in operands]
    return run_words(function, [*words, *words_of(function, given), "--", *paths], Call(**own))


def run_words(function: str, words: Sequence[str], call: Call) -> Any:
    """Run the tool of a function with the words of a command line; return its report."""
    tool = FUNCTIONS[function].tool
    main = import_module(require(find_tool(tool)).module).main
    if call.has_progress and "progress" not in _all_options(tool):
        raise TypeError(f"{function}() reports no progress")
    token = CALLER.set(call)
    error: PcircleError | None = None
    code = EXIT_OK
    try:
        code = main(words)
    except PcircleError as raised:
        error = raised
    finally:
        CALLER.reset(token)
    if error is None:
        code, report, message = _shared((code, call.report, call.last_message))
        if code not in _COMPLETE or report is None:
            error = _error(tool, code, report, message)
        elif call.error is None:
            return report
    raise call.error or _delivered(call, error)


def _error(tool: str, code: int, report: Any, message: str) -> PcircleError:
    """Return the error of a job that was refused or has not completed."""
    reasons = [*getattr(report, "reasons", ()), getattr(report, "reason", "")]
    reasons += [node.why for node in getattr(report, "bad_nodes", ())]  # of a broadcast
    text = "; ".join(filter(None, reasons)) or message.removeprefix(f"{tool}: ")
    error = error_of(code)(text or f"{tool} ended with exit code {code}")
    error.report = report
    return error


def _delivered(call: Call, error: PcircleError | None) -> BaseException:
    """Return the error to raise, after the signal that stopped the job reached the program.

    The program's own handler was replaced while the job ran, and now decides what the signal means.
    For Ctrl-C, this is KeyboardInterrupt.
    """
    if call.signal is not None:
        try:
            signal.raise_signal(call.signal)
        except BaseException as raised:
            raised.__cause__ = error
            return raised
    return error or Interrupted("stopped by the program")


def _shared(result: tuple[int, Any, str]) -> tuple[int, Any, str]:
    """Return rank 0's result on all ranks of MPI; elsewhere, the result itself."""
    mpi = sys.modules.get("pcircle.transport._mpi")
    return result if mpi is None else cast("tuple[int, Any, str]", mpi.share(result))
