"""Declarations of options: an option cannot be hidden by accident, and has one type."""

from __future__ import annotations

import pytest

from docs.generate.reference import _takes
from pcircle.cli.arguments import Parser
from pcircle.cli.declarations import Options, Section, option, override
from pcircle.core.errors import UsageError
from pcircle.library.call import ValueType


class _Common(Options):
    _all = Section("All")
    plain: str = "none"
    links: str | None = option("--links", metavar="WORD", help="treatment of links")
    jobs: int | None = option("--jobs", metavar="N", help="number of processes")
    level: str | None = option("--level", metavar="LEVEL", takes="number", help="level")
    place: str | None = option("--place", metavar="DIR", help="directory")
    owner: str | None = option("--owner", metavar="LIST", takes="users", help="owners")


def _derived(*bases: type[Options], **fields: object) -> type[Options]:
    """Return a class with these bases and fields."""
    derived: type[Options] = type("Derived", bases, fields)
    return derived


@pytest.mark.parametrize("value", ["none", option("--links", help="another option"), property(len)])
def test_an_inherited_option_is_not_hidden(value: object) -> None:
    with pytest.raises(TypeError, match="'links' hides an inherited option"):
        _derived(_Common, links=value)


def test_an_inherited_option_is_changed_by_an_override() -> None:
    changed = _derived(_Common, links=override(help="other help"))
    assert changed.declared["links"].help == "other help"
    assert changed.declared["links"].names == ("--links",)


def test_two_bases_do_not_declare_the_same_option() -> None:
    other = _derived(Options, links=option("--symlinks", help="another option"))
    with pytest.raises(TypeError, match="two bases declare the option 'links'"):
        _derived(other, _Common)
    derived = _derived(_Common, links=override(help="other help"))
    both = _derived(derived, _Common)
    assert both.declared["links"].help == "other help"


def test_a_plain_field_becomes_an_option() -> None:
    declared = _derived(_Common, plain=option("--plain", help="a flag"))
    assert declared.declared["plain"].name == "--plain"


@pytest.mark.parametrize(
    ("field", "takes", "type_name", "completed"),
    [
        ("links", "text", "text", ""),
        ("jobs", "number", "number", ""),
        ("level", "number", "number", ""),
        ("place", "directory", "path", "directory"),
        ("owner", "users", "text", "users"),
    ],
)
def test_all_uses_of_a_type_follow_its_declaration(
    field: str, takes: str, type_name: str, completed: str
) -> None:
    declared = _Common.declared[field]
    assert declared.takes == takes
    assert _takes(declared, ()) == completed
    parser = Parser("prog", "prog", "", "")
    parser.add_argument("operands", nargs="*")
    _Common.add_to(parser)
    (action,) = (found for found in parser._actions if found.dest == field)
    assert ValueType.of(action, declared.takes).name == type_name
    with pytest.raises(UsageError) as refused:
        parser.parse([f"--{field}", "-5k"], {})
    assert ("must not be negative" in str(refused.value)) == (takes == "number")
