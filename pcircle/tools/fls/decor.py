"""Names as printed in a listing: escaped, coloured, with type indicators and link targets."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from pcircle.core.encoding import attributes, show
from pcircle.fs.attributes.acls import ACCESS, DEFAULT, read_list, short_form
from pcircle.fs.stats import Stats
from pcircle.tools.fls.plan import Form


class NameBatch(msgspec.Struct, frozen=True):
    """Names in a directory that are not looked up.

    `printed` contains the names as printed. `shown` is the path of the directory, or empty for
    PATHs. `itself` is the number of leading names that are ``.`` or ``..``.
    """

    names: Sequence[bytes]
    printed: Sequence[bytes]
    fd: int
    shown: bytes
    itself: int


class StatBatch(NameBatch, frozen=True):
    """Names in a directory, and the results of their look-ups in `stats`.

    `failed` maps places to the errors of failed look-ups, and `kinds` maps the names to type
    letters. If the targets of links are looked up, `led` maps the places of links to the targets'
    modes.
    """

    stats: Stats
    failed: dict[int, OSError]
    kinds: dict[bytes, bytes]
    led: dict[int, int]

    def column(self, name: str) -> list[int]:
        """Return one status field of all entries."""
        return self.stats.column(name, 0, len(self.names))


def known(column: list[int], failed: dict[int, OSError]) -> list[int]:
    """Return a column without failed entries."""
    if not failed:
        return column
    return [value for place, value in enumerate(column) if place not in failed]


_MARKS = {stat.S_IFDIR: b"/", stat.S_IFLNK: b"@", stat.S_IFIFO: b"|", stat.S_IFSOCK: b"="}
_CODES = {
    stat.S_IFDIR: "di",
    stat.S_IFLNK: "ln",
    stat.S_IFIFO: "pi",
    stat.S_IFSOCK: "so",
    stat.S_IFBLK: "bd",
    stat.S_IFCHR: "cd",
}
_DEFAULT_COLORS = (
    "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:"
    "tw=30;42:ow=34;42:st=37;44"
)
_CONTEXT = "security.selinux"
Extra = dict[int, dict[str, bytes]]


class NameFormatter:
    """Formats names with the requested additions."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._links = form.long or bool(form.colors)
        self._asks = form.acl or form.xattr or form.context
        words = f"{_DEFAULT_COLORS}:{form.colors}".split(":")
        self._colors = {key: code.encode() for key, _, code in (w.partition("=") for w in words)}
        self._suffixes = tuple(
            (os.fsencode(key[1:]), code) for key, code in self._colors.items() if key[:1] == "*"
        )

    def plain(self, names: Sequence[bytes]) -> list[bytes]:
        """Return names without additions."""
        return [show(name).encode() for name in names] if self._form.escaped else list(names)

    def extra(self, looked: StatBatch, modes: list[int]) -> Extra:
        """Return properties that require further system calls, keyed by the index of the entry."""
        found: Extra = {}
        has_links = self._links and any(map(stat.S_ISLNK, set(modes)))

        def ask(start: int, stop: int) -> None:
            for place in range(start, stop):
                is_link = has_links and stat.S_ISLNK(modes[place])
                if place in looked.failed or not (self._asks or is_link):
                    continue
                more = self._link(looked, place) if is_link else {}
                if self._asks:
                    path = b"/proc/self/fd/%d/%b" % (looked.fd, looked.names[place])
                    more |= self._attributes(path, modes[place])
                if more:
                    found[place] = more

        if has_links or self._asks:
            looked.stats.beside(ask, 0, len(modes))
        return found

    def _link(self, looked: StatBatch, place: int) -> dict[str, bytes]:
        name, found = looked.names[place], {}
        with suppress(OSError):
            found["target"] = os.readlink(name, dir_fd=looked.fd)
        return found

    def _attributes(self, path: bytes, mode: int) -> dict[str, bytes]:
        form, found, lines = self._form, dict[str, bytes](), list[bytes]()
        if form.context:
            with suppress(OSError):
                context = os.getxattr(path, _CONTEXT, follow_symlinks=False)
                found["context"] = context.rstrip(b"\0")
        if form.acl and not stat.S_ISLNK(mode):
            kinds = (
                ((ACCESS, "acl"), (DEFAULT, "default"))
                if stat.S_ISDIR(mode)
                else ((ACCESS, "acl"),)
            )
            for attribute, word in kinds:
                with suppress(OSError):
                    value = read_list(path, attribute, follow=False)
                    if value is not None:
                        lines.append(f"{word} {short_form(value)}".encode())
            if lines:
                found["mark"] = b"+"
        if form.xattr:
            with suppress(OSError):
                names = attributes(path, follow=False)
                lines += [b"xattr " + show(os.fsencode(name)).encode() for name in sorted(names)]
        if lines:
            found["lines"] = b"".join(b"\n    " + line for line in lines)
        return found

    def names(self, looked: StatBatch, modes: list[int], extra: Extra) -> list[bytes]:
        """Return the names of entries with all additions."""
        form = self._form
        names = self.plain(looked.printed)
        if not (form.classify or form.colors or form.host or extra):
            return names
        top = os.path.abspath(looked.shown or b".") if form.host else b""
        for place, mode in enumerate(modes):
            more = extra.get(place, {})
            if place in looked.failed:
                continue
            name, target = names[place], more.get("target")
            led = looked.led.get(place)
            if form.colors:
                name = self._colored(name, self._color(looked, place, mode, led))
            if form.host:
                name = _linked(name, form.host, os.path.join(top, looked.printed[place]))
            if form.long and target is not None:
                name += b" -> " + self._target(target, led)
                mode = led or 0
            if form.classify:
                name += _mark(mode)
            names[place] = name + more.get("lines", b"")
        return names

    def _target(self, target: bytes, led: int | None) -> bytes:
        (shown,) = self.plain([target])
        if not self._form.follows or not self._form.colors:
            return shown
        if led is not None:
            return self._colored(shown, self._by_mode(target, led, 1))
        lost = [self._colors[code] for code in ("mi", "or") if _is_color(self._colors.get(code))]
        return self._colored(shown, lost[0] if lost else None)

    def _color(self, looked: StatBatch, place: int, mode: int, led: int | None) -> bytes | None:
        if stat.S_ISLNK(mode) and led is None and _is_color(self._colors.get("or")):
            return self._colors["or"]
        if stat.S_ISLNK(mode) and self._colors.get("ln") == b"target":
            return None if led is None else self._by_mode(looked.names[place], led, 1)
        (links,) = looked.stats.column("links", place, place + 1)
        return self._by_mode(looked.names[place], mode, links)

    def _by_mode(self, name: bytes, mode: int, links: int) -> bytes | None:
        colors = self._colors
        if stat.S_ISDIR(mode):
            both = mode & stat.S_ISVTX and mode & stat.S_IWOTH
            special = "tw" if both else "ow" if mode & stat.S_IWOTH else ""
            special = special or ("st" if mode & stat.S_ISVTX else "di")
            return colors[special] if _is_color(colors[special]) else colors["di"]
        if not stat.S_ISREG(mode):
            return colors.get(_CODES.get(stat.S_IFMT(mode), "or"))
        for is_so, code in (
            (mode & stat.S_ISUID, "su"),
            (mode & stat.S_ISGID, "sg"),
            (mode & 0o111, "ex"),
            (links > 1, "mh"),
        ):
            if is_so and _is_color(colors.get(code)):
                return colors[code]
        ends = (code for suffix, code in reversed(self._suffixes) if name.endswith(suffix))
        return next(ends, colors.get("fi"))

    def _colored(self, name: bytes, code: bytes | None) -> bytes:
        return b"\x1b[%bm%b\x1b[0m" % (code, name) if code and _is_color(code) else name


def _is_color(code: bytes | None) -> bool:
    return bool(code and code.strip(b"0"))


def _linked(name: bytes, host: str, path: bytes) -> bytes:
    from urllib.parse import quote_from_bytes  # imported late: few listings contain hyperlinks

    address = f"file://{host}{quote_from_bytes(path)}".encode()
    return b"\x1b]8;;%b\x07%b\x1b]8;;\x07" % (address, name)


def _mark(mode: int) -> bytes:
    if stat.S_ISREG(mode):
        return b"*" if mode & 0o111 else b""
    return _MARKS.get(stat.S_IFMT(mode), b"")
