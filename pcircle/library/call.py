"""A call of a tool as a function: its streams, its result and its errors.

A call runs the command itself, with keyword arguments as options, so a function and its command
cannot differ. The command writes to a `Call` instead of the standard streams, and hands over the
object from which it would write its JSON document.

Under MPI all ranks must make the same call. Only rank 0 has the result, so it is broadcast at the
end: all ranks return the same report, or raise the same error.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import IO, Any, Protocol, TextIO, cast

from pcircle.core.errors import (
    EXIT_OK,
    EntriesFailed,
    IntegrityError,
    Interrupted,
    PcircleError,
    UsageError,
    error_of,
    require,
)
from pcircle.core.writing import CALLER
from pcircle.library.arguments import FUNCTIONS, arguments_of, in_keywords, path_of
from pcircle.tools.commands import find_tool

_POLL_S = 0.05
_NAMED = 4  # keywords in a message
_COMPLETE = (EXIT_OK, EntriesFailed.exit_code, IntegrityError.exit_code)


class Cancel(Protocol):
    """A request to stop a job, such as a `threading.Event`. It is polled while the job runs."""

    def is_set(self) -> bool:
        """Return whether the job must stop."""
        ...


class Call:
    """A call of a tool; receives what the command would print.

    `messages` receives each line of standard error, `stdout` the bytes of standard output, and
    `progress` views of the job. An exception in one of these functions stops the job, and is then
    raised by the call. Implements `pcircle.core.writing.Caller`.
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

        # It starts after local ranks have been forked, because forking requires a single thread.
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
    """The standard error of a call; passes on whole lines."""

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


# ---- the run -------------------------------------------------------------------------------------


def run(
    function: str,
    operands: Iterable[object],
    options: Mapping[str, object],
    words: Sequence[str] = (),
    one_of: Sequence[str] = (),
) -> Any:
    """Run the tool behind the public function of this name; return its report.

    `words` are added to the command line. Raises TypeError for invalid arguments, and the
    `PcircleError` of the exit code if the job was refused or did not complete. A call without any
    of the keywords `one_of` is refused.
    """
    found, own = arguments_of(function, options)
    paths = [path_of(operand, f"{function}(): a path") for operand in operands]
    if one_of and all(options.get(name) in (None, False) for name in one_of):
        raise UsageError(f"at least one of {', '.join(one_of[:_NAMED])}, ... must be given")
    return run_words(function, [*words, *found, "--", *paths], Call(**own))


def run_words(function: str, words: Sequence[str], call: Call) -> Any:
    """Run the tool of a function with the words of a command line; return its report."""
    tool = FUNCTIONS[function].tool
    main = import_module(require(find_tool(tool)).module).main
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
    if isinstance(error, UsageError):
        error = UsageError(in_keywords(function, str(error)))
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
    """Deliver the signal that stopped the job, if any, to the program; return the error to raise.

    The program's own handler was replaced while the job ran, and now decides what the signal means.
    For Ctrl-C, Python's default handler raises KeyboardInterrupt.
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
