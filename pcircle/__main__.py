"""The `pcircle` command, also `python -m pcircle`: lists the tools, or runs one of them.

`pcircle fcp ...` is `fcp ...`, for installations where the tools are not on PATH, or where other
programs have their names.
"""

from __future__ import annotations

import sys

from pcircle.cli.startup import enter

_HELP = """\
usage: pcircle [TOOL [OPTION]... [OPERAND]...]
       pcircle doctor [OPTION]... [PATH]...
       pcircle scale [OPTION]...
       pcircle help [TOOL]

pcircle {version}: parallel file tools. Each has --help and a manual page; \
"pcircle TOOL" runs a tool that is not on PATH.

{commands}
"""


_MIN_COLUMNS = 40
_MIN_SUMMARY = 28  # characters of a line

_VERSIONS = ["--version"], ["--version", "-v"], ["-v", "--version"], ["--version", "--verbose"]


def _run() -> int:
    from pcircle.core import encoding
    from pcircle.core.errors import PcircleError

    try:
        arguments = encoding.arguments()
    except PcircleError as error:
        return _refused(str(error), error.exit_code)
    from pcircle.tools.commands import SUBCOMMANDS, find_tool, run_subcommand, run_tool

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    subcommand = SUBCOMMANDS.get(arguments[0]) if arguments else None
    if subcommand is not None:
        return run_subcommand(subcommand, arguments[1:])
    tool = find_tool(arguments[0]) if arguments else None
    if tool is not None:
        # The rest is set as the command line, from which the tool reads its arguments.
        sys.argv = [tool.name, *(arguments[1:] if sys.argv[1:2] == ["help"] else sys.argv[2:])]
        return run_tool(tool)
    return _answer(arguments)


def _answer(arguments: list[str]) -> int:
    """List the commands, or refuse arguments. Only the first of several ranks prints."""
    from pcircle import __version__
    from pcircle.core.errors import EntriesFailed, UsageError
    from pcircle.core.writing import is_broken_pipe, write_stream
    from pcircle.tools.commands import COMMANDS
    from pcircle.transport.launch import launched

    speaks = not launched().rank
    if arguments and arguments not in (["--help"], ["-h"], *_VERSIONS):
        text = f"unknown command {arguments[0]!a}"
        near = _similar(arguments[0])
        text += f"; did you mean '{near}'?" if near else ""
        return _refused(f"{text}\nTry 'pcircle --help'." if speaks else "", UsageError.exit_code)
    width = max(len(command.command_line) for command in COMMANDS)
    commands = "\n".join(
        f"  {command.command_line:{width}}  {command.summary}" for command in COMMANDS
    )
    said = _wrapped(_HELP.format(version=__version__, commands=commands))
    if arguments in _VERSIONS:
        said = f"pcircle {__version__}\n"
    if arguments in _VERSIONS[1:]:
        from pcircle.cli.output import version_details

        said += version_details()
    try:
        write_stream(sys.stdout.buffer if sys.stdout and speaks else None, said.encode())
    except OSError as error:
        if not speaks:
            return 0
        text = "" if is_broken_pipe(error) else f"cannot write standard output: {error.strerror}"
        return _refused(text, EntriesFailed.exit_code)
    return 0


def _wrapped(text: str) -> str:
    """Wrap the lines that are wider than the terminal, summaries in their own column."""
    from textwrap import wrap

    from pcircle.cli.output import columns

    width = max(columns() - 1, _MIN_COLUMNS)
    lines: list[str] = []
    for line in text.splitlines():
        begin = line.rfind("  ") + 2 if line.startswith("  ") else 0
        if line.startswith("pcircle", len("usage: ")):
            begin = len("usage: pcircle ")
        elif begin and width - begin < _MIN_SUMMARY:
            lines.append(line[:begin].rstrip())
            begin, line = 6, line[begin:].rjust(6 + len(line[begin:]))
        lines += wrap(line, width, subsequent_indent=" " * begin) or [""]
    return "\n".join(lines) + "\n"


def _similar(name: str) -> str:
    """Return the command whose name is most similar, or an empty string."""
    from difflib import get_close_matches

    from pcircle.tools.commands import SUBCOMMANDS, TOOLS

    return next(
        iter(get_close_matches(name, [*(tool.name for tool in TOOLS), *SUBCOMMANDS], 1)), ""
    )


def _refused(text: str, code: int) -> int:
    from pcircle.cli.output import MessageStream

    if text:
        MessageStream(sys.stderr).line(f"pcircle: {text}")
    return code


def main() -> int:
    """Run the command."""
    return enter(_run)


if __name__ == "__main__":
    sys.exit(main())
