"""Command lines: the definition of a command, the options that tools share, and their parsing.

This module imports only a few modules, so that `--help`, `--version` and the message for a mistyped
option appear at once. Each tool's `command` module interprets the options. It is imported only
after they have been parsed.

This module also composes the command that a message suggests to run next, for pasting into a shell:
the original command with an option added or removed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from pcircle.core import encoding
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, EntriesFailed, PcircleError, UsageError
from pcircle.core.writing import CALLER, is_broken_pipe, standard_error, write_stream
from pcircle.transport.launch import launched

FILTERS = """\
Patterns work as in rsync: the first match decides. * stops at a slash, **
does not. A leading / anchors at {root}; a trailing / matches only directories."""

SIZES = "Sizes: 4096, 64k, 1M, 1MiB, 2GB. Durations: 30, 0.5s, 5m, 2h."

LAUNCH = """\
Without MPI, {tool} starts up to 8 local processes; see --jobs.
Under mpirun or srun, each rank is one process, or --jobs processes."""

# argparse would search for translations of its messages in each of the user's languages. pcircle
# has no translations, and `_reworded` parses the English messages.
argparse._ = str  # type: ignore[attr-defined]

_FEWEST_COLUMNS = 40
_SUGGESTED = 2  # maximum number of options to suggest
_BEGUN_LETTERS = len("--v")
_SHORT_LETTERS = len("--chars")
_WHILE_LOGGED_S = 0.1


class Filter(NamedTuple):
    """A filter option. The order of filters on the command line matters."""

    kind: str
    text: str


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A help formatter that queries the terminal width; argparse would import `shutil` for this."""

    def __init__(self, prog: str) -> None:
        from pcircle.cli.output import columns

        super().__init__(prog, width=max(_FEWEST_COLUMNS, columns() - 1))

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """Show `[=VALUE]` for an option whose value is optional."""
        args = super()._format_args(action, default_metavar)
        return f"[={args}]" if isinstance(action, OptionalValue) else args

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Show the value after each flag; Python 3.13 and later show it once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        blank = "" if isinstance(action, OptionalValue) else " "
        return ", ".join(f"{flag}{blank}{value}" for flag in action.option_strings)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap help text; break long lists and paths after a comma or slash, but no words."""
        lines = [""]
        for word in text.split():
            gap = " "
            long = len(word) > width
            for part in word.replace(",", ", ").replace("/", "/ ").split() if long else [word]:
                if lines[-1] and len(lines[-1]) + len(gap) + len(part) > width:
                    lines.append(part)
                else:
                    lines[-1] += gap * bool(lines[-1]) + part
                gap = ""
        return lines

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fill paragraphs whose lines are longer than `width`, but leave commands as they are."""
        paragraphs = text.split("\n\n")
        for number, paragraph in enumerate(paragraphs):
            lines = paragraph.split("\n")
            if max(map(len, lines)) > width and not any(line.startswith(" ") for line in lines):
                paragraphs[number] = "\n".join(self._split_lines(paragraph, width))
        return super()._fill_text("\n\n".join(paragraphs), width, indent)


class OptionalValue(argparse._StoreAction):
    """An option with an optional value, joined by `=`."""


class ShowVersion(argparse.Action):
    """The option that prints the version and, with -v, how file operations are implemented."""

    def __init__(self, option_strings: Sequence[str], version: str, **kwargs: Any) -> None:
        super().__init__(option_strings, nargs=0, **kwargs)
        self.version: str = version

    def __call__(self, parser: argparse.ArgumentParser, *_args: object, **_kwargs: object) -> None:
        if isinstance(parser, Parser):
            parser._print_message(f"{parser.prog} {self.version}\n{parser.details()}", sys.stdout)
        parser.exit()


class _ShortHelp(argparse._HelpAction):
    """The option that prints the short help."""

    def __call__(self, parser: argparse.ArgumentParser, *_args: object, **_kwargs: object) -> None:
        if isinstance(parser, Parser):
            parser._print_message(parser.format_short_help(), sys.stdout)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """The parser of a tool. Invalid and abbreviated options raise UsageError.

    `elsewhere` maps options of other programs to hints.
    """

    elsewhere: Mapping[str, str] = {}
    takes_only_paths = True
    """True if all operands are paths; other tools call `refuse_remote` themselves."""

    def __init__(self, prog: str, usage: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self._optionals.title = "Options"
        self._actions[0].help = "show this help"
        self.options: Any = None  # the class that declares the options
        self.bare: dict[str, str] = {}
        self.takes: dict[str, str] = {}  # the types of values, by the names of options
        self._words: Sequence[str] = ()
        self._most_used: Sequence[str] = ()

    def add_short_help(self, most_used: Sequence[str]) -> None:
        """Make -h show only `most_used`, unless the tool uses -h for something else."""
        self._most_used = most_used
        long = self._option_string_actions["--help"]
        if self._option_string_actions.get("-h") is long:
            long.option_strings, long.help = ["--help"], "show all options"
            del self._option_string_actions["-h"]
            text = "show the most commonly used options"
            self._optionals.add_argument("-h", action=_ShortHelp, dest="help", help=text)
        else:
            long.help = "show this help (=short: the most common options)"

    def format_short_help(self) -> str:
        """Return the usage, the most used options and three examples."""
        if not self._most_used:
            return self.format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text((self.description or "").partition("\n\n")[0])
        formatter.start_section("Most used options")
        formatter.add_arguments([self._option_string_actions[name] for name in self._most_used])
        formatter.end_section()
        examples = (self.epilog or "").rpartition("Examples:\n")[2].splitlines()[:3]
        formatter.add_text("\n".join(["Examples:", *examples]))
        return f"{formatter.format_help()}\n'{self.prog} --help' shows all options.\n"

    def details(self) -> str:
        """Return the details of the version if --verbose was given, or an empty string."""
        action = self._option_string_actions.get("-v")
        is_taken = action is not None and action.dest != "verbose"
        words = {"--verbose"} if is_taken else {"-v", "-vv", "--verbose"}
        if words.isdisjoint(self._words):
            return ""
        from pcircle.cli.output import version_details

        return version_details()

    def hint(self, unknown: str) -> str:
        """Return a hint about an unknown option, or an empty string."""
        if unknown == "--progress":
            return "progress is shown on a terminal by default"
        if unknown == "-n" and "--dry-run" in self._option_string_actions:
            return "--dry-run shows what would be done"
        cluster = "" if unknown.startswith("--") else unknown[:2]
        return self.elsewhere.get(unknown, "") or self.elsewhere.get(cluster, "")

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with argparse's message in this project's wording."""
        negative = self._negative(message)
        raise UsageError(negative or _reworded(message, self._words))

    def _negative(self, message: str) -> str:
        """Return the error for a negative number after an option, or an empty string.

        argparse takes `-5k` for an option, and even `-5` if the parser has an option such as `-0`.
        """
        names, expected, _ = message.removeprefix("argument ").partition(": expected one argument")
        for option, value in pairwise(self._words) if expected else ():
            action = self._option_string_actions.get(option)
            is_negative = value.startswith("-") and value[1:2].isdecimal()
            is_number = self.takes.get(option) == "number"
            if action and option in names.split("/") and is_number and is_negative:
                return f"{_name_of(action)}: invalid value {value!a}: must not be negative"
        return ""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            shown = str(value).encode("utf-8", "backslashreplace").decode()
            choices = ", ".join(map(str, action.choices))
            text = f"{_name_of(action)}: invalid value {shown!a}; choose from {choices}"
            raise UsageError(text)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help or the version. Raises OSError, which argparse would ignore."""
        if message:
            encoding = getattr(file, "encoding", None) or "utf-8"
            write_stream(file, message.encode(encoding, "backslashreplace"))

    def parse(self, arguments: Sequence[str], bare: Mapping[str, str]) -> argparse.Namespace:
        """Parse options and `operands` in any order; all words after `--` are operands.

        `bare` maps options whose value is optional, and must be joined by `=`, to their default
        form. In the result, `unjoined` pairs these options with operands that follow them and may
        be intended as their values, and `words` contains all arguments.
        """
        bare = {**self.bare, **bare}
        end = arguments.index("--") if "--" in arguments else len(arguments)
        self._words = arguments[:end]
        short = "--help=short"
        if any(b == short and not self.takes_value(a) for a, b in pairwise(["", *self._words])):
            self._print_message(self.format_short_help(), sys.stdout)
            self.exit()
        args = self.parse_intermixed_args([self._valued(word, bare) for word in self._words])
        args.operands += arguments[end + 1 :]
        args.words = tuple(arguments)
        ends = [(self._bare_end(word, bare), value) for word, value in pairwise(self._words)]
        args.unjoined = [
            (option, value)
            for option, value in ends
            if option is not None and _is_value_of(self._option_string_actions[option], value)
        ]
        return args

    def takes_value(self, word: str) -> bool:
        """Return whether a word is an option whose value is the next word."""
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs != 0 and not isinstance(action, OptionalValue)

    def _valued(self, word: str, bare: Mapping[str, str]) -> str:
        """Return a word in the form that argparse expects, with the value of its last option."""
        letters, equals, value = word.partition("=")
        option = self._bare_end(letters, bare)
        if option is None or (equals and (option.startswith("--") or not value)):
            return word
        return letters.removesuffix(option[1:]) + (
            option[1:] + value if equals else bare[option][1:]
        )

    def _bare_end(self, word: str, bare: Mapping[str, str]) -> str | None:
        """Return the option of `bare` with which a word ends, such as `-s` in `-avs`, or None."""
        if word in bare:
            return word
        last = "-" + word[-1:]
        if last not in bare or not word.startswith("-") or word.startswith("--"):
            return None
        flags = (self._option_string_actions.get("-" + letter) for letter in word[1:-1])
        return last if all(flag is not None and flag.nargs == 0 for flag in flags) else None


def require_operands(given: Sequence[bytes], *names: str, more: bool = False) -> None:
    """Raise UsageError unless one operand is given for each name, or at least one with `more`."""
    missing = names[len(given) :]
    if missing:
        noun = "operand" if len(missing) == 1 else "operands"
        after = f" after '{show(given[-1])}'" if given else ""
        raise UsageError(f"missing {noun} {' and '.join(missing)}{after}")
    if len(given) > len(names) and not more:
        raise UsageError(f"extra operand '{show(given[len(names)])}'")


def notes(name: str, text: str) -> str:
    """Return the last part of a tool's help: notes on sizes and processes, and `text`."""
    return f"{SIZES}\n\n{LAUNCH.format(tool=name)}\n\n{text}"


def run(
    parser: Callable[[], Parser],
    given: Sequence[str] | None,
    bare: Mapping[str, str],
    carry_out: Callable[[argparse.Namespace], int],
    *,
    speaks: bool,
    joined: Callable[[Sequence[str]], Sequence[str]] = list,
) -> int:
    """Parse the arguments, run the command and return the exit code; only one rank `speaks`.

    Errors are raised if a program called the tool, and otherwise printed. If `given` is None, the
    arguments are those of the process. `joined` joins words that form one argument.
    """
    built = parser()
    name = built.prog
    arguments: Sequence[str] = ()
    try:
        arguments = joined(encoding.arguments() if given is None else given)
        is_hidden = not speaks and CALLER.get() is None
        try:
            if is_hidden:
                sys.stdout, standard = open(os.devnull, "w"), sys.stdout  # noqa: SIM115
            args = built.parse(arguments, bare)
            if is_hidden:
                sys.stdout.close()
                sys.stdout = standard
        except SystemExit as end:  # --help and --version
            return end.code if isinstance(end.code, int) else Defect.exit_code
        except OSError as error:  # help or the version could not be written
            if not is_broken_pipe(error):
                _complain(name, f"cannot write standard output: {error.strerror}")
            return EntriesFailed.exit_code
        if built.takes_only_paths:
            refuse_remote(args.operands)
        return carry_out(args)
    except UsageError as error:
        text = _explain(error, arguments, built)
        if CALLER.get() is not None:
            raise UsageError(text) from None
        if speaks:
            _complain(name, f"{text}\nTry '{name} --help'.")
        return error.exit_code
    except PcircleError as error:
        if CALLER.get() is not None:
            raise
        _complain(name, str(error))
        return error.exit_code


def refuse_remote(paths: Sequence[str]) -> None:
    """Raise UsageError for a path that rsync would interpret as remote, unless it exists.

    A colon before the first slash makes a path remote: `host:path`, `s3://bucket`.
    """
    for path in paths:
        if ":" in path.split("/", 1)[0] and not os.path.lexists(path):
            shown = show(os.fsencode(path))
            raise UsageError(
                f"'{shown}': remote paths are not supported; mount the file system, "
                f"or use './{shown}' for a local file"
            )


def _name_of(action: argparse.Action) -> str:
    """Return the long name of an option, or its only name."""
    names = action.option_strings
    return next((name for name in names if name.startswith("--")), names[0])


def _reworded(message: str, words: Sequence[str]) -> str:
    """Return argparse's message in this project's wording."""
    import re

    unknown = re.fullmatch(r"unrecognized arguments: (\S+).*", message, re.DOTALL)
    if unknown:
        word = unknown[1]
        whole = next((w for w in words if w.endswith(word[1:]) and not w.startswith("--")), word)
        if whole != word and not word.startswith("--"):  # as Python 3.12.8 and 3.13 report it
            return f"unknown option '-{word[1]}' in {whole!a}"
        return f"unknown option {word.split('=')[0] if word.startswith('--') else word!a}"
    found = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
    if not found:
        return message
    name, problem = found[1].split("/")[-1], found[2]
    if problem.startswith("ignored explicit argument "):
        return _surplus(name, problem.partition("'")[2].removesuffix("'"), words)
    if problem.startswith("expected "):
        return f"{name} requires {'two values' if problem.startswith('expected 2') else 'a value'}"
    return f"{name}: {problem}"


def _surplus(name: str, text: str, words: Sequence[str]) -> str:
    """Return the error for a value that is joined to an option that takes none."""
    for word in words:
        letters = word[: -len(text)] if text and word.endswith(text) else ""
        if text.startswith("="):
            break
        if letters.startswith("-") and not letters.startswith("--") and "=" not in letters:
            return f"unknown option '-{text[0]}' in {word!a}"
    return f"{name} takes no value"


def _is_value_of(action: argparse.Action, text: str) -> bool:
    """Return whether an option lists this value in its help."""
    import re

    listed = set(re.findall(r"[a-z0-9]+", (action.help or "").rpartition(":")[2]))
    known = listed.union(map(str, action.choices or ()))
    return all(part in known for part in text.split(","))


def _unknown(message: str) -> str:
    """Return the option that a message calls unknown, or an empty string."""
    _, begin, remainder = message.partition("unknown option '")
    if begin:
        return remainder.partition("'")[0]
    # In other programs, --progress takes no value, or different values.
    return "--progress" if message.startswith("--progress: invalid value") else ""


def _explain(error: UsageError, arguments: Sequence[str], parser: Parser) -> str:
    """Return the message with the options that the user probably intended."""
    unknown = _unknown(str(error))
    hint = parser.hint(unknown) if unknown else ""
    if hint:
        return f"{error}; {hint}"
    for word in arguments:
        name = word.split("=")[0]
        if word.startswith("--") and len(name) > 2 and str(error) == f"unknown option {name!a}":
            similar = near(name, sorted(parser._option_string_actions))
            return f"{error}; did you mean {' or '.join(similar)}?" if similar else str(error)
    return str(error)


def near(name: str, options: Sequence[str]) -> list[str]:
    """Return the options that begin with `name`, or else the most similar options."""
    known = [option for option in options if option.startswith("--")]
    begun = [option for option in known if option.startswith(name)]
    if 0 < len(begun) <= _SUGGESTED and len(name) > _BEGUN_LETTERS:
        return begun
    most = 1 + (len(name) > _SHORT_LETTERS) + (len(name) > 2 * _SHORT_LETTERS)
    apart = {option: _edits(name, option) for option in known}
    least = min(apart.values(), default=0)
    found = [option for option in known if apart[option] == least]
    return found if least <= most and len(found) <= _SUGGESTED else []


def _edits(one: str, other: str) -> int:
    """Return the number of letters to insert, delete, replace or swap (edit distance)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before, row = before, row, [at]
        for to, other_letter in enumerate(other, 1):
            edits = min(before[to] + 1, row[-1] + 1, before[to - 1] + (letter != other_letter))
            if at > 1 < to and letter == other[to - 2] and one[at - 2] == other_letter:
                edits = min(edits, earlier[to - 2] + 1)
            row.append(edits)
    return row[-1]


def _complain(name: str, text: str) -> None:
    from pcircle.cli.output import MessageStream

    MessageStream(standard_error()).line(f"{name}: {text}")


def command(
    name: str,
    words: Sequence[str],
    *,
    add: str | None = None,
    drop: Collection[str] = (),
    drop_valued: Collection[str] = (),
) -> str:
    """Return the command line of a tool from its original `words`.

    The option `add` is added; the options in `drop`, and in `drop_valued` with their values, are
    removed.
    """
    end = words.index("--") if "--" in words else len(words)
    remaining = []
    args = iter(words[:end])
    for word in args:
        if word in drop_valued:
            next(args, None)
        elif word not in drop and word.partition("=")[0] not in drop_valued:
            remaining.append(word)
    if add is not None and add not in remaining:
        remaining.insert(0, add)
    return " ".join([name, *map(_quoted, [*remaining, *words[end:]])])


def _quoted(word: str) -> str:
    """Quote a word for the shell so that the result is printable."""
    from shlex import quote

    shown = show(os.fsencode(word))
    if shown.replace(r"\\", "\\") == word:
        return quote(word)
    escaped = shown.replace("'", r"\'")
    return f"$'{escaped}'"


def logging(
    name: str, carry_out: Callable[[argparse.Namespace], int], *, speaks: bool
) -> Callable[[argparse.Namespace], int]:
    """Wrap `carry_out` so that it logs the end of the command, if requested.

    Only the rank that `speaks` writes the line. If the command fails, the other ranks give that
    rank time to do so, because a launcher may end all ranks when the first one fails.
    """

    def run(args: argparse.Namespace) -> int:
        if "syslog" not in args or not args.syslog:  # not every command has the option
            return carry_out(args)
        if speaks:
            from pcircle.cli.syslog import logged

            return logged(name, command(name, args.words), lambda: carry_out(args))
        code = carry_out(args)
        if code:
            import time

            time.sleep(_WHILE_LOGGED_S)
        return code

    return run


class ToolCommand(NamedTuple):
    """A command. `operands` names its operands in the usage; `add` adds options to a parser.

    `carry_out` runs the parsed command, and imports the modules that it needs. `bare` and `joined`
    are arguments of `pcircle.cli.arguments.run`. `most_used` are the options in the short help, and
    `elsewhere` are hints for options of other programs.
    """

    name: str
    operands: str
    usage: str
    description: str
    epilog: str
    add: Callable[[Parser], None]
    carry_out: Callable[[argparse.Namespace], int]
    bare: Mapping[str, str] = {}
    joined: Callable[[Sequence[str]], Sequence[str]] = list
    most_used: Sequence[str] = ()
    elsewhere: Mapping[str, str] = {}

    def parser(self) -> Parser:
        """Return the parser of the command."""
        p = Parser(self.name, self.usage, self.description, self.epilog)
        p.add_argument("operands", nargs="*", metavar=self.operands, help=argparse.SUPPRESS)
        p.elsewhere = self.elsewhere
        self.add(p)
        if self.most_used:
            p.add_short_help(self.most_used)
        return p

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command and return the exit code; only the first rank prints messages."""
        speaks = not launched().rank
        carry_out = logging(self.name, self.carry_out, speaks=speaks)
        return run(self.parser, arguments, self.bare, carry_out, speaks=speaks, joined=self.joined)
