"""Generate completions for zsh, as specifications for `_arguments`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from docs.generate.completions.flags import MADE, primary_flags, program_of, tool_names
from docs.generate.primaries import Primary
from docs.generate.reference import Option, Positional, Reference

_ACTIONS = {
    "file": "_files",
    "directory": "_directories",
    "user": "_users",
    "group": "_groups",
    "users": "_sequence _users",
    "groups": "_sequence _groups",
    "owner": '{compset -P "*:" && _groups || _users}',
    "": " ",
}
_COMMAND = "program: _command_names -e:*\\;::argument: _normal"


_TOOLS = """\
if ((CURRENT == 3)) && [[ $words[2] == help ]]; then
    compadd {subcommand} {tools}
    return
fi
if ((CURRENT > 2)) && [[ $words[2] != {subcommand} ]]; then # a tool, as if its own name was typed
    shift words
    ((CURRENT--))
    _normal
    return
fi
"""


def script(about: Reference) -> str:
    """Return the completion of a command."""
    name, subcommand = program_of(about)
    specs = [spec for option in about.options for spec in _option(option)]
    specs += [spec for primary in about.primaries for spec in _primary(primary)]
    specs += [f"'1:command:({subcommand} {tool_names()} help)'"] if subcommand else []
    specs += _positionals(about.positionals)
    # If primaries have one dash, letters cannot be combined.
    begin = "_arguments -S : \\" if about.primaries else "_arguments -s -S : \\"
    body = " \\\n".join(f"    {spec}" for spec in specs)
    tools = _TOOLS.format(subcommand=subcommand, tools=tool_names()) if subcommand else ""
    return f"#compdef {name}\n# {MADE[0].upper()}{MADE[1:]}\n\n{tools}{begin}\n{body}\n"


def _option(option: Option) -> Iterator[str]:
    """Yield a specification per flag; flags exclude each other, unless they are repeatable."""
    ends = _is_end(option.flags)
    left_out = "(- *)" if ends else "(" + " ".join(option.flags) + ")"
    if option.repeatable:
        left_out = "*"
    elif len(option.flags) == 1 and not ends:
        left_out = ""
    said = f"[{_explained(option.help)}]"
    colons = "::" if option.value == "optional" else ":"
    values = "".join(
        f"{colons}{'value' if option.choices else _message(metavar)}:{_action(option)}"
        for metavar in option.metavars
    )
    for flag in option.flags:
        yield _quoted(left_out + flag + _joint(option, flag) + said + values)


def _is_end(flags: Sequence[str]) -> bool:
    return "--help" in flags or "--version" in flags


def _joint(option: Option, flag: str) -> str:
    """Return how a value follows the flag: `=-` in the same word only, `=` also in the next."""
    if option.value == "none":
        return ""
    if option.value == "optional":
        return "=-"
    return "=" if flag.startswith("--") else "+"


def _action(option: Option) -> str:
    words = " ".join(option.choices or option.words)
    if option.takes == "words":
        return f"_values -s , word {words}"
    return f"({words})" if words else _ACTIONS[option.takes]


def _primary(primary: Primary) -> Iterator[str]:
    said = f"[{_explained(primary.help)}]"
    choices = f"({' '.join(primary.choices)})"
    for flag in primary_flags(primary):
        values = "".join(
            f":{_message(metavar)}:{choices if primary.choices else _ACTIONS[primary.takes]}"
            for metavar in primary.metavars
            if primary.takes != "command"
        )
        values = f":{_COMMAND}" if primary.takes == "command" else values
        yield _quoted(f"*{flag}{said}{values}")


def _positionals(positionals: Sequence[Positional]) -> Iterator[str]:
    """Yield the operands; all from the first repeatable one on are treated alike."""
    at = next((at for at, each in enumerate(positionals) if each.repeatable), len(positionals))
    for number, each in enumerate(positionals[:at], 1):
        yield _quoted(f"{number}:{_message(each.name)}:{_ACTIONS[each.takes]}")
    if positionals[at:]:
        names = " or ".join(_message(each.name) for each in positionals[at:])
        yield _quoted(f"*:{names}:{_ACTIONS[positionals[at].takes]}")


def _explained(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _message(text: str) -> str:
    return text.replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
