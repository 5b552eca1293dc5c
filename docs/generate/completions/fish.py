"""Generate completions for fish, version 3 or later."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.completions.flags import MADE, primary_flags, program_of, tool_names
from docs.generate.primaries import Primary
from docs.generate.reference import Option, Reference

_BEGIN = """\
# fish completion of {name}, {made}

function __pcircle_list -d 'Words, after the present words of a comma-separated list'
    set -l begun (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    set begun (string replace -r -- '[^,]*$' '' $begun)
    set -q begun[1]; or set begun ''
    printf '%s\\n' $begun$argv
end

function __pcircle_owner -d 'A user, or a group after a colon'
    set -l begun (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '')
    if string match -q -- '*:*' $begun
        printf '%s\\n' (string replace -r -- ':.*' ':' $begun)(__fish_print_groups)
    else
        __fish_print_users
    end
end

"""
_ACTIONS = {
    "directory": "-x -a '(__fish_complete_directories)'",
    "user": "-x -a '(__fish_print_users)'",
    "group": "-x -a '(__fish_print_groups)'",
    "users": "-x -a '(__pcircle_list (__fish_print_users))'",
    "groups": "-x -a '(__pcircle_list (__fish_print_groups))'",
    "owner": "-x -a '(__pcircle_owner)'",
    "command": "-x -a '(__fish_complete_command)'",
    "file": "-r -F",
    "": "-x",
}
# The single dash ensures an argument: without one `string` would read its input.
_NO_OPERAND = "not string match -qv -- '-*' - (commandline -poc)[2..-1]"


def script(about: Reference) -> str:
    """Return the completion of a command."""
    name, subcommand = program_of(about)
    within = f" -n '__fish_seen_subcommand_from {subcommand}'" if subcommand else ""
    lines = [_option(name + within, option) for option in about.options]
    if subcommand:
        said = _quoted(about.command.summary)
        lines.append(f"complete -c {name} -n __fish_use_subcommand -f -a {subcommand} -d {said}")
        tools = tool_names()
        lines.append(f"complete -c {name} -n __fish_use_subcommand -f -a '{tools} help'")
        within = "-n '__fish_seen_subcommand_from help'"
        lines.append(f"complete -c {name} {within} -f -a '{subcommand} {tools}'")
        # A tool is completed as if its own name had been typed.
        within = f"-n '__fish_seen_subcommand_from {tools}'"
        lines.append(f"complete -c {name} {within} -f -a '(__fish_complete_subcommand)'")
    lines += [_primary(name, primary) for primary in about.primaries if primary_flags(primary)]
    lines += _operand(about)
    return _BEGIN.format(name=name, made=MADE) + "\n".join(lines) + "\n"


def _option(name: str, option: Option) -> str:
    words = [f"complete -c {name}"]
    for flag in option.flags:
        words.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
    words.append(f"-d {_quoted(option.help)}")
    if option.value != "none":
        action = _words(option) or _ACTIONS[option.takes]
        # -x would require a value, which is optional here.
        words.append(action.replace("-x", "-f", 1) if option.value == "optional" else action)
    return " ".join(words)


def _words(option: Option) -> str:
    words = " ".join(option.choices or option.words)
    if option.takes == "words":
        return f"-x -a '(__pcircle_list {words})'"
    return f"-x -a '{words}'" if words else ""


def _primary(name: str, primary: Primary) -> str:
    words = [f"complete -c {name}"]
    words += [f"-o {flag[1:]}" for flag in primary_flags(primary)]
    words.append(f"-d {_quoted(primary.help)}")
    if primary.metavars:
        choices = f"-x -a '{' '.join(primary.choices)}'" if primary.choices else ""
        words.append(choices or _ACTIONS[primary.takes])
    return " ".join(words)


def _operand(about: Reference) -> Iterator[str]:
    """Yield the completion of the first operand, unless it is a file."""
    first = next(iter(about.positionals), None)
    if first is not None and first.takes not in ("file", "directory"):
        condition = f"-n {_quoted(_NO_OPERAND)}"
        action = _ACTIONS[first.takes].replace("-x", "-f", 1)
        yield f"complete -c {about.command.name} {condition} {action}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
