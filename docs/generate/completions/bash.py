"""Generate completions for bash 4.3 or later, which do not need bash-completion's functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.generate.completions.flags import MADE, all_flags, primary_flags, program_of, tool_names
from docs.generate.reference import Option, Reference

# The action for each type of value. If an action finds nothing, readline itself completes files,
# with correct quoting, unless this is switched off.
_ACTIONS = {
    "file": ":",
    "directory": "compopt +o default -o dirnames",
    "user": "_pcircle_reply -u",
    "group": "_pcircle_reply -g",
    "users": "_pcircle_list -u",
    "groups": "_pcircle_list -g",
    "owner": "_pcircle_owner",
    "command": "_pcircle_reply -c",
    "": "compopt +o default",
}

_BEGIN = """\
# bash completion of {name}, {made}

_pcircle_reply() {{ # matches of a compgen action that begin with the word
    compopt +o default
    mapfile -t COMPREPLY < <(compgen -P "$before" "$@" -- "$cur")
    COMPREPLY=("${{COMPREPLY[@]#"$kept"}}")
}}

_pcircle_list() {{ # like _pcircle_reply, for the last word of a comma-separated list
    case $cur in *,*) before+=${{cur%,*}}, cur=${{cur##*,}} ;; esac
    _pcircle_reply "$@"
    compopt -o nospace
}}

_pcircle_owner() {{ # a user, or a group after a colon
    case $cur in
        *:*)
            before+=${{cur%%:*}}: cur=${{cur#*:}}
            _pcircle_reply -g
            ;;
        *) _pcircle_reply -u ;;
    esac
}}

_{name}() {{
    local words=() word at cur previous option= before= kept operands=0 is_ended=
    COMPREPLY=()
    # Rejoin the words that readline splits at = and :; it keeps the text before them.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${{COMP_WORDS[at]}}
        if ((at > 1)) && [[ $word == [=:]* || ${{words[-1]}} == *[=:] ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    cur=${{words[-1]}} previous=${{words[-2]}}
    case $word in [=:]*) kept=$cur ;; *) kept=${{cur%"$word"}} ;; esac
    for ((at = 1; at < ${{#words[@]}} - 1; at++)); do
        case ${{words[at]}} in
            --) is_ended=1 ;;
            {required}) ((at++)) ;;
            -*) ;;
            *) ((operands++)) ;;
        esac
    done
    if [[ ! $is_ended ]]; then
        case $cur in
            -*=*) option=${{cur%%=*}} before=$option= cur=${{cur#*=}} ;;
            *)
                case $previous in
                    {required}) option=$previous ;;
{letters}                esac
                ;;
        esac
    fi
"""

_SUBCOMMAND = """\
    if ((${{#words[@]}} == 2)); then
        _pcircle_reply -W '{subcommand} {tools} help --help --version'
        return
    fi
    if [[ ${{words[1]}} == help ]]; then
        _pcircle_reply -W '{subcommand} {tools}'
        return
    fi
    if [[ ${{words[1]}} != {subcommand} ]]; then # a tool: as if its own name had been typed
        declare -F _command_offset >/dev/null && _command_offset 1
        return
    fi
"""

_LETTERS = """\
                    --*) ;;
                    -*) # combined letters: the last one may take a value
                        case -${previous: -1} in
                            %s) option=-${previous: -1} ;;
                        esac
                        ;;
"""

_PAIRS = """\
    if ((${#words[@]} > 3)); then
        case ${words[-3]} in %s) option=${words[-3]} ;; esac # with two values
    fi
"""

_COMMANDS = """\
    # Inside a command, up to its end.
    for ((at = ${#words[@]} - 2; at > 0; at--)); do
        case ${words[at]} in
            ';' | "';'" | '\\;' | +) break ;;
            -exec | -execdir)
                [[ $previous == "${words[at]}" ]] && _pcircle_reply -c
                return
                ;;
        esac
    done
"""

_END = """\
    if [[ $cur == -* && ! $is_ended ]]; then
        _pcircle_reply -W '{flags}'
{last}    fi
}}
complete -o default -F _{name} {name}
"""


def script(about: Reference) -> str:
    """Return the completion of a command."""
    name, subcommand = program_of(about)
    required = [option for option in about.options if option.value == "required"]
    flags = [flag for option in required for flag in option.flags]
    primaries = [flag for each in about.primaries if each.metavars for flag in primary_flags(each)]
    # If primaries have one dash, letters cannot be combined.
    letters = [flag for flag in flags if len(flag) == 2 and not primaries]
    text = _BEGIN.format(
        name=name,
        made=MADE,
        required=_pattern([*flags, *primaries]),
        letters=_LETTERS % _pattern(letters) if letters else "",
    )
    text += _SUBCOMMAND.format(subcommand=subcommand, tools=tool_names()) if subcommand else ""
    pairs = [flag for option in about.options if len(option.metavars) > 1 for flag in option.flags]
    text += _PAIRS % _pattern(pairs) if pairs else ""
    text += _COMMANDS if primaries else ""
    text += "\n".join(["    case $option in", *_branches(about), "    esac", ""])
    return text + _END.format(name=name, flags=" ".join(all_flags(about)), last=_operand(about))


def _branches(about: Reference) -> Iterator[str]:
    """Yield the action of each option with a value; other options have none."""
    by_action: dict[str, list[str]] = {}
    for option in about.options:
        if option.value != "none":
            by_action.setdefault(_action(option), []).extend(option.flags)
    for primary in about.primaries:
        if primary.metavars:
            words = f"_pcircle_reply -W '{' '.join(primary.choices)}'"
            action = words if primary.choices else _ACTIONS[primary.takes]
            by_action.setdefault(action, []).extend(primary_flags(primary))
    yield "        '') ;;"
    for action, flags in by_action.items():
        yield f"        {_pattern(flags)})"
        yield f"            {action}"
        yield "            return"
        yield "            ;;"


def _action(option: Option) -> str:
    words = " ".join(option.choices or option.words)
    if words:
        return f"{'_pcircle_list' if option.takes == 'words' else '_pcircle_reply'} -W '{words}'"
    return _ACTIONS[option.takes]


def _operand(about: Reference) -> str:
    """Return the completion of the first operand, unless it is a file."""
    first = next(iter(about.positionals), None)
    if first is None or first.takes in ("file", "directory"):
        return ""
    return f"    elif ((operands == 0)); then\n        {_ACTIONS[first.takes]}\n"


def _pattern(flags: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(flags))
