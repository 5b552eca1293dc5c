"""Declarations of options: everything about an option is stated once, as a field of a class.

    class SearchOptions(CommonOptions, root="PATH"):
        _search = Section("Search")
        top: int | None = option("--top", metavar="N", parse=positive, help="only the N largest")
        '''Of entries of equal size, the first by name is preferred.'''

        _filters = CommonOptions.FILTERS

`Options.add_to` derives the parser from the class; its help has the sections and options in the
order of the class. `Options.of` checks the combinations of options on a command line and returns
their typed values. `Options.planned` returns the values for the fields of a plan that have the name
of an option. The string below a declaration is a paragraph of the manual. From the strings and the
declarations, `docs.generate` writes manuals, completions and lists of options. Such a string costs
nothing when the tool runs.

`CommonOptions` declares the options of several tools. Each class inherits all their fields, but a
command has only the options of the sections that its class lists.

This module is imported before a command line is parsed, so it imports almost nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pcircle.cli.arguments import OptionalValue, Parser
from pcircle.core.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

Words = Sequence[str] | Callable[[], Iterable[str]]

_TAKES = {
    **dict.fromkeys(("N", "SIZE", "RATE", "T"), "number"),
    **dict.fromkeys(("FILE", "MANIFEST"), "file"),
    "DIR": "directory",
}
"""The types of values by metavar, for options that do not state a type."""
_NOT_GIVEN: tuple[object, ...] = (None, False, 0)


class Option:
    """The declaration of an option, or of several options that set one field.

    `takes` is the type of the value: "number", "file", "directory", "user", "users" (by comma),
    "group", "groups", "owner" (USER:GROUP), or "text". It follows from the metavar, unless it is
    stated. Error messages, completions and the types of keyword arguments depend on it.
    `parse` converts the text of a value, or all texts of a repeatable option; its first argument is
    the name of the option, for messages. `otherwise` is the value of the field if the option is not
    given, unless argparse has a default text. `bare` is the value of an option whose value is
    optional. `excludes` and `requires` contain fields, or `field=text` for one value of a field;
    one of the required options suffices. `hints` maps an element of `excludes` to text that is
    appended to the message about it. Messages about combinations use the word `called` instead of a
    name. Completions offer `words`, or lists of the words in `word_list`, in addition to other
    values. Either may be a function, if the words are in a module that parsing does not need.
    `also` are further options that set the field. A plan contains the value of an option that is
    `recorded`. A resumed job must have the same value of an option that is `same_on_resume`. If
    this is the name of a field of the plan, the values of that field are compared. The remaining
    arguments are those of argparse; an option without any of them is a flag.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        takes: str = "",
        parse: Callable[[str, Any], object] | None = None,
        otherwise: object = None,
        bare: str | None = None,
        called: str | None = None,
        words: Words = (),
        word_list: Words = (),
        repeatable: bool = False,
        excludes: Sequence[str] = (),
        hints: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
        also: Sequence[Option] = (),
        recorded: bool = False,
        same_on_resume: bool | str = False,
        **argparse_arguments: Any,
    ) -> None:
        self.names = names
        self.help = help
        self.takes: str = takes or _TAKES.get(argparse_arguments.get("metavar", ""), "text")
        self.parse = parse
        self.otherwise = otherwise
        self.bare = bare
        self.called = called
        self.words = words
        self.word_list = word_list
        self.repeatable = repeatable
        self.excludes = excludes
        self.hints: Mapping[str, str] = hints or {}
        self.requires = requires
        self.also = also
        self.recorded = recorded
        self.same_on_resume = same_on_resume
        more = argparse_arguments
        self.arguments: dict[str, Any] = argparse_arguments
        if bare is not None:
            more.setdefault("action", OptionalValue)
        elif repeatable:
            more.setdefault("action", "append")
        elif more.keys().isdisjoint(("metavar", "choices", "action")):
            more["action"] = "store_true"

    @property
    def name(self) -> str:
        """The first long name, or the only name."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments that holds the unconverted value."""
        dest: str = self.arguments.get("dest") or self.name.lstrip("-").replace("-", "_")
        return dest

    def changed(self, **arguments: Any) -> Option:
        """Return a copy of the declaration with some arguments changed."""
        copy: Option = object.__new__(Option)
        own = {name: value for name, value in arguments.items() if name in vars(self)}
        more = {name: value for name, value in arguments.items() if name not in own}
        vars(copy).update(vars(self), **own, arguments=self.arguments | more)
        return copy

    def value(self, args: argparse.Namespace | None = None) -> Any:
        """Return the converted value of the field; without `args`, as if the option were not given.

        Raises UsageError.
        """
        found = getattr(args, self.dest, None)
        if found is None:
            found = self.arguments.get("default")
        if self.repeatable:
            found = tuple(found or ())
        elif found is None and self.arguments.get("action") == "store_true":
            found = False
        if found is None:
            return self.otherwise
        return found if self.parse is None else self.parse(self.name, found)

    def is_given(self, args: argparse.Namespace) -> bool:
        """Return whether a command line has the option, with a value other than its default."""
        value = getattr(args, self.dest, None)
        return value not in (*_NOT_GIVEN, self.arguments.get("default"))

    def shown(self, args: argparse.Namespace) -> str:
        """Return the option for a message, with its value if the option has a list of choices."""
        if self.called is not None:
            return self.called
        value = getattr(args, self.dest)
        has_choice = "choices" in self.arguments and self.bare is None
        return f"{self.name}={value}" if has_choice else self.name

    def __get__(self, options: Options | None, owner: type[Options]) -> Any:
        """Return the default of the field; the class itself has the declaration."""
        return self if options is None else self.value()


def option(*names: str, **arguments: Any) -> Any:
    """Declare an option as the default of a field; the arguments are those of `Option`."""
    return Option(*names, **arguments)


class Override(dict[str, Any]):
    """Changes to an inherited declaration."""


def override(**arguments: Any) -> Any:
    """Declare an inherited option with other arguments, such as a different help text."""
    return Override(arguments)


class Section:
    """The beginning of a section of the help, to which the following declarations belong.

    In another class, the same section stands for all its options. A section without a title is a
    group of options that other classes take into their sections.
    """

    def __init__(self, title: str = "", text: str = "", fields: Sequence[str] = ()) -> None:
        self.title = title
        self.text = text
        self.fields: list[str] = list(fields)

    def copy(self) -> Section:
        """Return a section that a class can extend without changing this one."""
        return Section(self.title, self.text, self.fields)


def taken(*fields: str) -> Section:
    """Take inherited options, by the names of their fields, into the current section."""
    return Section(fields=fields)


class Options:
    """The options of a command, declared by the fields of a subclass.

    A field without an option has a plain default, or is required. A subclass may declare an option
    for such a field, but an inherited option is changed only by `override`. Inherited options in
    `without` are not offered. The other keyword arguments of the class replace words in braces in
    the help.
    """

    declared: ClassVar[Mapping[str, Option]] = {}
    """All declared options by field, including inherited ones that the command does not have."""
    sections: ClassVar[Sequence[Section]] = ()
    terms: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, without: Sequence[str] = (), **terms: str) -> None:
        declared: dict[str, Option] = {}
        owners: dict[str, type] = {}
        inherited: dict[str, str] = {}
        for base in reversed(cls.__mro__[1:]):
            for name, found in vars(base).get("declared", {}).items():
                if declared.get(name) not in (None, found) and not issubclass(base, owners[name]):
                    raise TypeError(f"{cls.__name__}: two bases declare the option '{name}'")
                declared[name], owners[name] = found, base
            inherited |= vars(base).get("terms", {})
        cls.terms = inherited | terms
        sections: list[Section] = []
        current = Section()
        for name, value in list(vars(cls).items()):
            if name in declared and not isinstance(value, Override):
                raise TypeError(f"{cls.__name__}: '{name}' hides an inherited option: use override")
            if isinstance(value, Section):
                if value.fields and not value.title:
                    current.fields += value.fields
                    continue
                current = value if not value.fields else value.copy()
                if value.title:
                    sections.append(current)
            elif isinstance(value, Option):
                declared[name] = value
                current.fields.append(name)
            elif isinstance(value, Override):
                declared[name] = declared[name].changed(**value)
                setattr(cls, name, declared[name])
        cls.declared = declared
        cls.sections = [
            Section(found.title, found.text, [name for name in found.fields if name not in without])
            for found in sections or cls.sections
        ]

    def __init__(self, **values: Any) -> None:
        fields = self.field_names()
        unknown = values.keys() - fields
        missing = {name for name in fields - values.keys() if not hasattr(type(self), name)}
        if unknown or missing:
            raise TypeError(f"unknown or missing options: {sorted(unknown | missing)}")
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"options cannot be changed: {name}")

    @classmethod
    def field_names(cls) -> set[str]:
        """Return the names of all fields and cached properties."""
        found = set()
        for base in cls.__mro__:
            annotations = vars(base).get("__annotations__", {}).items()
            found |= {name for name, kind in annotations if not kind.startswith("ClassVar")}
            found |= {name for name, value in vars(base).items() if type(value) is cached_property}
        return found

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return type(self)(**{**vars(self), **changes})

    def planned(self, plan: type[Any]) -> dict[str, Any]:
        """Return the values of the fields that also exist, by the same names, in a job's plan."""
        return {name: getattr(self, name) for name in plan.__struct_fields__ if hasattr(self, name)}

    def same_on_resume(self, plan: object) -> dict[str, Any]:
        """Return the values that a resumed job must have again, by the names of their options."""
        own = self.effective()
        return {
            _listed(names): getattr(own if fact in self.declared else plan, fact)
            for fact, names in self.resume_facts().items()
        }

    def effective(self) -> Self:
        """Return options with the same effect, which are equal if their effects are equal."""
        return self

    @classmethod
    def resume_facts(cls) -> dict[str, list[str]]:
        """Return the fields that are compared when a job resumes, with the names of the options."""
        found: dict[str, list[str]] = {}
        for field, declared in cls.offered():
            if declared.same_on_resume:
                fact = field if declared.same_on_resume is True else declared.same_on_resume
                options = (declared, *declared.also)
                called = declared.called
                names = [called] if called else [option.name for option in options]
                found.setdefault(fact, []).extend(names)
        return found

    @classmethod
    def offered(cls) -> Iterator[tuple[str, Option]]:
        """Yield the options of the command with their fields, in the order of the help."""
        for section in cls.sections:
            for name in section.fields:
                yield name, cls.declared[name]

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Add the options of the command to its parser."""
        parser.options = cls
        for section in cls.sections:
            group = parser.add_argument_group(section.title, cls._text(section.text) or None)
            for name in section.fields:
                first = cls.declared[name]
                for found in (first, *first.also):
                    if "-h" in found.names:  # as in ls and chown
                        parser._option_string_actions.pop("-h").option_strings = ["--help"]
                    parser.takes |= dict.fromkeys(found.names, found.takes)
                    group.add_argument(*found.names, help=cls._text(found.help), **found.arguments)
                    if found.bare is not None:
                        parser.bare |= {text: _joined(text, found.bare) for text in found.names}

    @classmethod
    def _text(cls, text: str) -> str:
        for word, meaning in cls.terms.items():
            text = text.replace(f"{{{word}}}", meaning)
        return text

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        """Return the options of a parsed command line; `others` are further fields.

        Raises UsageError.
        """
        cls.refuse_combinations(args)
        fields = cls.field_names()
        values = {name: found.value(args) for name, found in cls.offered() if name in fields}
        found = cls(**{**values, **others})
        found.refuse_conflicts()
        return found

    def refuse_conflicts(self) -> None:
        """Raise UsageError for values that do not go together."""

    @classmethod
    def refuse_combinations(cls, args: argparse.Namespace) -> None:
        """Raise UsageError if a given option excludes another one, or requires one not given."""
        for _, given in cls.offered():
            if not given.is_given(args):
                continue
            for other in given.excludes:
                if cls._has(args, other):
                    shown = cls._shown(args, other)
                    hint = given.hints.get(other, "")
                    raise UsageError(f"{given.name} cannot be combined with {shown}{hint}")
            if given.requires and not any(cls._has(args, other) for other in given.requires):
                others = _listed([cls._shown(args, other) for other in given.requires])
                raise UsageError(f"{given.name} requires {others}")

    @classmethod
    def _has(cls, args: argparse.Namespace, field: str) -> bool:
        name, equals, text = field.partition("=")
        found = cls.declared[name]
        return getattr(args, found.dest, None) == text if equals else found.is_given(args)

    @classmethod
    def _shown(cls, args: argparse.Namespace, field: str) -> str:
        name, equals, text = field.partition("=")
        found = cls.declared[name]
        if equals:
            return f"{found.name}={text}"
        return found.shown(args) if found.is_given(args) else found.name


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _joined(name: str, value: str) -> str:
    """Return an option joined to its optional value."""
    return f"{name}={value}" if name.startswith("--") else name + value
