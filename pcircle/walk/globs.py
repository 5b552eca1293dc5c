"""Selects entries by rsync's filter patterns, which are compiled to regular expressions.

The rules follow those of rsync, including special cases, because users know them; the tests compare
the results with rsync itself. The first rule that matches decides, and a name that no rule matches
is selected. `*` and `?` do not match a slash, but `**` does. A pattern that contains neither a
slash nor `**` is matched against the name alone. A pattern with a slash is matched against the end
of the path, and a pattern that begins with a slash against the complete path below the root. A
pattern that ends with a slash matches only directories. A pattern that ends with `/***` matches a
directory and everything in it, and one that ends with `/***/` only the directories among these. A
backslash escapes the next character, but only in a pattern that contains a wildcard.

All rules are compiled to one alternation for directories and one for other entries. Python tries
alternatives in order, so the alternative that matches belongs to the first matching rule. A name
therefore needs only one match, however many rules there are. If all patterns match names only, no
paths are built.

The algorithm is that of `rule_matches` in rsync's `exclude.c`, and of `wildmatch.c`.

Rules and filters are applied to the names in a directory when it is read. The walk ignores excluded
entries and does not enter excluded directories.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pcircle.core.errors import require
from pcircle.fs.directories import join_path
from pcircle.fs.entry_errors import LOOP, EntryError
from pcircle.fs.scan import Block
from pcircle.walk.attributes import ANY, AttributeFilter, OfflineCounter, chooser_of
from pcircle.walk.items import Identity

_ANY = b"(?s:.*)"  # `**`
_WITHIN = b"[^/]*"  # `*`
_ONE = b"[^/]"
_SLASH = b"/"
_AT_ANY_LEVEL = b"(?:(?s:.*)/)?"
_NEVER = b"(?!)"
_CLASSES = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": b"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": b"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb"\t\n\v\f\r ",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """A pattern, and whether it includes or excludes matching entries."""

    include: bool
    pattern: bytes


def read_rule(text: bytes, *, include: bool) -> Rule | None:
    """Parse a rule; return None for `!`, which cancels all earlier rules.

    A leading `+ ` or `- ` overrides `include`. Raises ValueError for an empty pattern.
    """
    if text == b"!":
        return None
    if text[:2] in (b"+ ", b"- "):
        include, text = text.startswith(b"+"), text[2:]
    if not text:
        raise ValueError("empty pattern")
    return Rule(include, text)


def read_rules(text: bytes, *, include: bool, null: bool = False) -> Iterator[Rule | None]:
    """Parse the rules of a file, one per line or, with `null`, NUL-terminated.

    Lines that begin with `#` or `;` are comments. Raises ValueError, which names the line, if a
    rule is invalid.
    """
    lines = text.split(b"\0") if null else re.split(rb"[\r\n]", text)
    for number, line in enumerate(lines, 1):
        if line and line[:1] not in b"#;":
            try:
                yield read_rule(line, include=include)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def leave_out(rules: Sequence[Rule], path: bytes, *, directory: bool) -> bool:
    """Return whether rules exclude the entry at a path or one of its parents."""
    chooser, parts = Chooser(rules), path.split(b"/")
    for count in range(1, len(parts) + 1):
        asked = parts[count - 1] if chooser.by_name else b"/".join(parts[:count])
        if not chooser.chooses(asked, directory=directory or count < len(parts)):
            return True
    return False


class Chooser:
    """Selects paths below a root by rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        patterns = [_Pattern(rule.pattern) for rule in rules]
        names_only = all(pattern.name_only for pattern in patterns)
        self.by_name = names_only
        """True if all rules match names only, so that `chooses` needs no paths."""
        self._includes: dict[bool, list[bool]] = {}
        self._match = {}
        for directory in (False, True):
            patterns_of_kind = [
                (rule.include, pattern.expression(directory, names_only))
                for rule, pattern in zip(rules, patterns, strict=True)
                if directory or not pattern.directories
            ]
            self._includes[directory] = [include for include, _ in patterns_of_kind]
            union = b"|".join(b"(" + expression + b")" for _, expression in patterns_of_kind)
            self._match[directory] = re.compile(union if patterns_of_kind else _NEVER).fullmatch

    def chooses(self, path: bytes, *, directory: bool) -> bool:
        """Return whether an entry is selected, by its path or, if `by_name`, by its name."""
        found = self._match[directory](path)
        if found is None:
            return True
        return self._includes[directory][require(found.lastindex) - 1]


class _Pattern:
    """A parsed pattern."""

    def __init__(self, text: bytes) -> None:
        wild = any(sign in text for sign in (b"*", b"[", b"?"))
        self._crosses = b"**" in text
        self._begins_crossing = text.startswith(b"**")
        self.directories = len(text) > 1 and text.endswith(b"/")
        if self.directories:
            text = text[:-1]
        self._ends_crossing = text.endswith(b"***")
        self._slashes = text.count(b"/")
        self.name_only = not self._slashes and not self._crosses
        self._anchored = text.startswith(b"/")
        text = text[self._anchored :]
        tokens = _tokens(text) if wild else [re.escape(text) or _NEVER]
        self._tokens = [_NEVER] if tokens is None else tokens
        self._classes = b"[" in text

    def expression(self, directory: bool, names_only: bool) -> bytes:
        """Return a regular expression without groups for paths or, with `names_only`, for names."""
        tokens = self._tokens
        if directory and self._ends_crossing and tokens[-2:] == [_SLASH, _ANY]:
            # Match both the directory and its contents.
            tokens = [*tokens[:-2], b"(?:/(?s:.*))?"]
        body = b"".join(tokens)
        if self._anchored or names_only or tokens == [_NEVER]:
            return body
        if self._begins_crossing:
            # `**/a` also matches `a` at the top level. The first token is `**`.
            suffix = b"".join(tokens[1:])
            if tokens[1:2] == [_SLASH]:
                return _AT_ANY_LEVEL + b"".join(tokens[2:])
            return _ANY + suffix
        if self._slashes and not self._crosses and self._classes:
            # A slash in brackets cannot match, but adds a required path component.
            count = b"%d" % self._slashes
            return _AT_ANY_LEVEL + b"(?=(?:[^/]*/){%s}[^/]*\\Z)" % count + body
        return _AT_ANY_LEVEL + body


def _tokens(text: bytes) -> list[bytes] | None:
    """Translate the parts of a pattern to regular expressions; return None if it cannot match."""
    tokens = []
    at = 0
    while at < len(text):
        sign = text[at : at + 1]
        at += 1
        if sign == b"*":
            stars = at
            while text[at : at + 1] == b"*":
                at += 1
            tokens.append(_ANY if at > stars else _WITHIN)
        elif sign == b"?":
            tokens.append(_ONE)
        elif sign == b"[":
            found = _bracket(text, at)
            if found is None:
                return None
            token, at = found
            tokens.append(token)
        else:
            if sign == b"\\":
                sign = text[at : at + 1]
                at += 1
                if not sign:
                    return None
            tokens.append(re.escape(sign))
    return tokens


def _bracket(text: bytes, at: int) -> tuple[bytes, int] | None:
    """Translate a bracket expression, and find its end; return None if it is invalid.

    `at` is the index after the `[`.
    """
    inverted = text[at : at + 1] in (b"!", b"^")
    at += inverted
    parts: list[bytes] = []
    before = b""  # the previous character, which begins a range if `-` follows
    first = True
    while first or text[at : at + 1] != b"]":
        first = False
        sign = text[at : at + 1]
        if not sign:
            return None
        if sign == b"\\":
            at += 1
            sign = text[at : at + 1]
            if not sign:
                return None
        elif sign == b"-" and before and text[at + 1 : at + 2] not in (b"", b"]"):
            at += 1
            end = text[at : at + 1]
            if end == b"\\":
                at += 1
                end = text[at : at + 1]
                if not end:
                    return None
            if before <= end:
                parts.append(_hex(before) + b"-" + _hex(end))
            before = b""
            at += 1
            continue
        elif text[at : at + 2] == b"[:":
            close = text.find(b"]", at + 2)
            if close < 0:
                return None
            if close > at + 2 and text[close - 1 : close] == b":":
                known = _CLASSES.get(text[at + 2 : close - 1])
                if known is None:
                    return None
                parts.append(known)
                before = b""
                at = close + 1
                continue
        parts.append(_hex(sign))
        before = sign
        at += 1
    members = b"".join(parts)
    if inverted:
        return b"[^/" + members + b"]", at + 1
    return (b"(?!/)[" + members + b"]" if members else _NEVER), at + 1


def _hex(sign: bytes) -> bytes:
    return b"\\x%02x" % sign[0]


_ONE_NAME = struct.Struct("<QQ")


def descent(above: bytes, identity: Identity) -> bytes:
    """Return the `ancestors` of the entries in a directory, given its own ancestors, `above`.

    Raises EntryError if the directory is one of its own ancestors.
    """
    one = _ONE_NAME.pack(*identity)
    if any(above.startswith(one, at) for at in range(0, len(above), _ONE_NAME.size)):
        raise EntryError(LOOP, "it leads back to a directory above it")
    return above + one


def follow(block: Block, directory_fd: int) -> None:
    """Classify the links in a block by the kinds of their targets."""
    links, block.links = block.links, []
    for name in links:
        try:
            mode = os.stat(name, dir_fd=directory_fd).st_mode
        except OSError:
            mode = stat.S_IFREG  # opening the file will report the error
        block.add_target(name, mode)


Choose = Callable[[Block, bytes, int], None]


def choosing(
    rules: Sequence[Rule],
    attribute_filter: AttributeFilter = ANY,
    now_ns: int = 0,
    *,
    follow: bool = False,
    tally: OfflineCounter | None = None,
) -> Choose:
    """Return a function that removes excluded entries from a block of a directory.

    The function also takes the path of the directory, which rules need, and its descriptor, which
    attributes need. Ages are relative to `now_ns`. With `follow`, the attributes of a link are
    those of its target. `tally` counts the files that are excluded because they are offline.
    """
    steps: list[Choose] = []
    if rules:
        chooser = Chooser(rules)
        steps.append(lambda block, path, fd: _choose(block, path, chooser))
    if attribute_filter != ANY:
        steps.append(chooser_of(attribute_filter, now_ns, follow=follow, tally=tally))

    def choose(block: Block, path: bytes, fd: int) -> None:
        for step in steps:
            step(block, path, fd)

    return choose


def _choose(block: Block, path: bytes, chooser: Chooser) -> None:
    if chooser.by_name:
        path = b""

    def choose(names: Sequence[str], *, directory: bool) -> list[str]:
        chooses = chooser.chooses
        return [n for n in names if chooses(join_path(path, os.fsencode(n)), directory=directory)]

    block.directories = choose(block.directories, directory=True)
    block.files = choose(block.files, directory=False)
    block.links = choose(block.links, directory=False)
    block.specials = choose(block.specials, directory=False)
