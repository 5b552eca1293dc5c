"""A call of a tool as a function: its arguments, its streams, its result and its errors.

A call runs the command itself, with keyword arguments as options, so a function and its command
cannot differ. The command writes to a `Call` instead of the standard streams, and hands over the
object from which it would write its JSON document.

The parser of the tool defines the keywords and the types of their values, so all functions check
their arguments before a job begins. Messages of the command that mention an option are changed to
mention its keyword.

Under MPI all ranks must make the same call. Only rank 0 has the result, so it is broadcast at the
end: all ranks return the same report, or raise the same error.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
from argparse import Action
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from numbers import Real
from typing import IO, Any, NamedTuple, Protocol, TextIO, cast

from pcircle.cli.arguments import OptionalValue, Parser, near
from pcircle.core.errors import (
    EXIT_OK,
    EntriesFailed,
    IntegrityError,
    Interrupted,
    PcircleError,
    UsageError,
    error_of,
    require,
    require_type,
)
from pcircle.core.writing import CALLER
from pcircle.tools.commands import find_tool

# Options that make sense only for a command.
_OF_COMMANDS = frozenset(
    ("h", "help", "interval", "op_timeout", "quiet", "stats", "syslog", "verbose", "version")
)
_CALLBACKS = ("messages", "progress", "stdout")
_OF_CALLS = ("cancel", *_CALLBACKS)
"""Keyword arguments that are not options."""
# A quoted name, or an option that is perhaps followed by a value.
_QUOTED_OR_OPTION = re.compile(
    r"'[^']*'|(?<![^\s(])(--[a-z][a-z-]*|-[A-Za-z0-9])(?:=([^\s,;:]+))?(?![^\s,;:.)])"
)
_POLL_S = 0.05
_NAMED = 4  # keywords in a message
_COMPLETE = (EXIT_OK, EntriesFailed.exit_code, IntegrityError.exit_code)


class Function(NamedTuple):
    """A public function: the tool that it runs, and the keywords that it lacks."""

    tool: str
    without: tuple[str, ...] = ()


_FORMATS = (
    *("classify", "color", "g", "human_readable", "hyperlink", "inode", "l", "numeric_uid_gid"),
    *("o", "size", "stdout", "time_style", "total"),
)
_WRITING = ("force", "format", "output", "rot", "update")
FUNCTIONS = {
    "broadcast": Function("fbcast", ("progress",)),
    "change": Function("fchmod"),
    "check": Function("fsum", ("check", "checksums", "diff", "export", *_WRITING)),
    "compare": Function("fdiff"),
    "copy": Function("fcp", ("target_directory",)),
    "entries": Function("fls", _FORMATS),
    "find": Function("ffind", ("stdout",)),
    "mirror": Function("fmirror"),
    "profile": Function("fprof", ("diff", "merge")),
    "remove": Function("frm", ("I", "i")),
    "sign": Function("fsum", ("check", "diff", "export", "quick", "rot", "strict")),
}


class ValueType(NamedTuple):
    """The type of an option's value: a flag, a number, a path or text.

    If `is_optional` is set, True stands for the default value. If `is_repeatable` is set, a
    sequence of values is accepted.
    """

    name: str
    is_optional: bool = False
    is_repeatable: bool = False

    @classmethod
    def of(cls, action: Action, takes: str) -> ValueType:
        """Return the type of the value of a parser's option, from what its declaration takes."""
        if action.nargs == 0:
            return cls("flag")
        name = "text" if action.choices is not None else _TYPES.get(takes, "text")
        return cls(name, isinstance(action, OptionalValue), "Append" in type(action).__name__)

    def accepts(self, value: object) -> bool:
        """Return whether a value, or an element of a sequence, has this type."""
        if isinstance(value, bool):
            return value is True and self.is_optional
        is_number = self.name == "number" and isinstance(value, Real)
        return is_number or isinstance(value, str | bytes | os.PathLike)

    def __str__(self) -> str:
        text = {"flag": "True or False", "number": "a number or text", "path": "a path"}
        said = text.get(self.name, "text")
        said += f" or a sequence of {said}" * self.is_repeatable
        return said + " or True" * self.is_optional


_TYPES = {"number": "number", "file": "path", "directory": "path"}


class Keyword(NamedTuple):
    """A keyword argument for an option: the name of the option, and what its parser knows."""

    option: str
    action: Any
    type: ValueType


def keywords_of(function: str) -> tuple[str, ...]:
    """Return the keyword arguments of a function that are not options."""
    return tuple(name for name in _OF_CALLS if name not in FUNCTIONS[function].without)


def options_of(function: str) -> dict[str, Keyword]:
    """Return the options of a function by keyword.

    The keywords of an option are its long names, with underscores, or else its letter.
    """
    tool, without = FUNCTIONS[function]
    refused = {*_OF_COMMANDS, *_OF_CALLS, *without}
    return {name: found for name, found in _all_options(tool).items() if name not in refused}


def _all_options(tool: str) -> dict[str, Keyword]:
    found: dict[str, Keyword] = {}
    parser = require_type(Parser, require(find_tool(tool)).built())
    for action in parser._actions:
        strings = action.option_strings
        for name in [name for name in strings if name.startswith("--")] or strings:
            keyword = keyword_of(name)
            if keyword.isidentifier():
                type = ValueType.of(action, parser.takes.get(name, "text"))
                found[keyword] = Keyword(name, action, type)
    return found


def keyword_of(option: str) -> str:
    """Return the keyword argument for an option: `--skip-same` is `skip_same`, `--in` is `in_`."""
    name = option.lstrip("-").replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


# ---- checks --------------------------------------------------------------------------------------


def arguments_of(function: str, options: Mapping[str, object]) -> tuple[list[str], dict[str, Any]]:
    """Return the words of the command line, and the keyword arguments that are not options.

    True becomes an option without a value, False and None are omitted, and a sequence repeats the
    option. Raises TypeError for an unknown keyword, and for a value of the wrong type.
    """
    known, own_keywords = options_of(function), keywords_of(function)
    words: list[str] = []
    own: dict[str, Any] = {}
    for keyword, value in options.items():
        where = f"{function}(): '{keyword}'"
        if keyword in own_keywords:
            own[keyword] = _own(keyword, value, where)
        elif keyword in known:
            words += _words(known[keyword], value, where)
        else:
            raise TypeError(_unknown(function, keyword, (*known, *own_keywords)))
    return words, own


def _own(keyword: str, value: object, where: str) -> object:
    if keyword in _CALLBACKS and not (value is None or callable(value)):
        raise TypeError(f"{where} must be a function, not {_type_of(value)}")
    if keyword == "cancel" and not (value is None or callable(getattr(value, "is_set", None))):
        raise TypeError(f"{where} must have an is_set method, not {_type_of(value)}")
    return value


def _words(keyword: Keyword, value: object, where: str) -> list[str]:
    option, kind = keyword.option, keyword.type
    if kind.name == "flag":
        return [option] if flag_of(value, where) else []
    values: Sequence[object] = (value,)
    if kind.is_repeatable and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        values = value
    words = []
    for item in values:
        if item is None or (item is False and kind.is_optional):
            continue
        if not kind.accepts(item):
            raise TypeError(f"{where} must be {kind}, not {_type_of(item)}")
        text = "" if item is True else f"={_text(item)}"
        words.append(option + (text if option.startswith("--") else text[1:]))
    return words


def _text(value: object) -> str:
    """Return a value as text; a float without a fraction is formatted as an integer."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)


def _type_of(value: object) -> str:
    """Return the name of a value's type, with its module unless the type is built in."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def flag_of(value: object, where: str) -> bool:
    """Return the value of a flag. Raises TypeError."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise TypeError(f"{where} must be True or False, not {_type_of(value)}")


def path_of(value: object, where: str) -> str:
    """Return a path as text. Raises TypeError for other types, including numbers."""
    if isinstance(value, str | bytes | os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{where} must be text or bytes, not {_type_of(value)}")


def _unknown(function: str, keyword: str, known: Iterable[str]) -> str:
    """Return the message for an unknown keyword, with the keyword that was probably meant."""
    tool, without = FUNCTIONS[function]
    option, meant = _long_forms(tool).get(f"-{keyword}", ("", keyword))
    if meant not in known and meant in _all_options(tool):
        return f"{function}() does not take '{keyword}': only the command {tool} does"
    if keyword in without:
        return f"{function}() does not take '{keyword}'"
    message = f"{function}() got an unexpected keyword argument '{keyword}'"
    if option:
        return f"{message}; {option} is '{meant}'"
    similar = _similar(keyword, [name for name in known if len(name) > 1])
    return f"{message}; did you mean {similar}?" if similar else message


def _long_forms(tool: str) -> dict[str, tuple[str, str]]:
    """Return each option string of a tool with the option and its keyword."""
    return {
        string: (string, keyword)
        for keyword, found in reversed(_all_options(tool).items())
        for string in found.action.option_strings
    }


def _similar(keyword: str, known: Iterable[str]) -> str:
    """Return the keywords that were probably meant, as text."""
    options = {f"--{name.replace('_', '-')}": name for name in known}
    found = near(f"--{keyword.replace('_', '-')}", sorted(options))
    return " or ".join(f"'{options[option]}'" for option in found)


# ---- messages ------------------------------------------------------------------------------------


def in_keywords(function: str, message: str) -> str:
    """Return a message of the command with keyword arguments instead of options.

    Further lines of the message show the words that the program has given, and are not changed.
    """
    known = options_of(function)
    forms: Mapping[str, tuple[str, str]] = _long_forms(FUNCTIONS[function].tool)

    def keyword(found: re.Match[str]) -> str:
        name = forms.get(found[1] or "", ("", ""))[1]
        if name not in known:
            return found[0]
        if known[name].type.name == "flag":
            return f"{name}=True"
        return f"{name}={found[2]!r}" if found[2] else name

    first, end, further = message.partition("\n")
    return _QUOTED_OR_OPTION.sub(keyword, first) + end + further


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
            cast("IO[bytes]", _Output(self, stdout)), "utf-8", write_through=True
        )
        self.errors: TextIO = cast("TextIO", _Messages(self, messages))
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
