"""Users and groups on the command line: OWNER:GROUP as in chown, and maps as in rsync."""

from __future__ import annotations

import os

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.attributes.owners import IdRule

_MAX_ID = (1 << 32) - 2  # to the kernel, the highest number means "unchanged"
_MAX_DIGITS = 10
_WILD = frozenset("*?[")


class Owner(msgspec.Struct, frozen=True):
    """The IDs of a user and a group; an ID that is not specified is None."""

    uid: int | None
    gid: int | None


def number_of(kind: str, name: str) -> int:
    """Return the ID of a user ("u") or a group ("g"), by name or number. Raises ValueError."""
    if not name.startswith("+"):
        try:
            if kind == "u":
                import pwd  # imported late: few runs name a user or group

                return pwd.getpwnam(name).pw_uid
            import grp  # imported late like pwd

            return grp.getgrnam(name).gr_gid
        except (KeyError, UnicodeEncodeError):
            pass  # not a name: it must be a number
    number = _number(name.removeprefix("+"))
    if number is not None and number <= _MAX_ID:
        return number
    raise ValueError(f"unknown {'user' if kind == 'u' else 'group'} '{_shown(name)}'")


def _number(digits: str) -> int | None:
    """Return the value of decimal digits, or None for any other text.

    If there are more than `_MAX_DIGITS` digits, the result is `_MAX_ID` + 1.
    """
    if not (digits.isascii() and digits.isdecimal()):
        return None
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_DIGITS else _MAX_ID + 1


def _shown(text: str) -> str:
    return show(os.fsencode(text))


def user_of(option: str, name: str) -> int:
    """Return a user's ID. Raises UsageError."""
    return _known(option, "u", name)


def group_of(option: str, name: str) -> int:
    """Return a group's ID. Raises UsageError."""
    return _known(option, "g", name)


def _known(option: str, kind: str, name: str) -> int:
    try:
        return number_of(kind, name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def read_owner(option: str, text: str, *, login: bool = True) -> Owner:
    """Parse OWNER, OWNER:GROUP, OWNER: or :GROUP. Raises UsageError.

    If `login` is set, `OWNER:` selects the user's login group.
    """
    user, colon, group = text.partition(":")
    uid = user_of(option, user) if user else None
    if group:
        return Owner(uid, group_of(option, group))
    if not (colon and user and login):
        return Owner(uid, None)
    import pwd

    try:
        return Owner(uid, pwd.getpwnam(user).pw_gid)
    except KeyError:
        raise UsageError(
            f"{option}: '{_shown(user)}' has no login group: write OWNER:GROUP"
        ) from None


def read_map(option: str, text: str) -> tuple[IdRule, ...]:
    """Parse a list of FROM:TO, as in ``rsync --usermap``. Raises UsageError.

    FROM is a name with ``*``, ``?`` and ``[]``, a number, a range such as 0-99, or empty for
    numbers without a name.
    """
    kind = "u" if option == "--usermap" else "g"
    return tuple(_rule(option, kind, word) for word in text.split(","))


def _rule(option: str, kind: str, text: str) -> IdRule:
    origin, colon, target = text.partition(":")
    if not colon or not target:
        raise UsageError(f"{option}: invalid value '{_shown(text)}': must be FROM:TO")
    to = _known(option, kind, target)
    if origin == "*":
        return IdRule(0, _MAX_ID, to)
    if not origin:
        return IdRule(0, 0, to, "[0-9]*")  # an ID without a name is matched as a number
    low, dash, high = origin.partition("-")
    first, last = _number(low), _number(high if dash else low)
    if first is not None and last is not None:
        if not first <= last <= _MAX_ID:
            shown = _shown(text)
            raise UsageError(f"{option}: invalid value '{shown}': not a range of numbers")
        return IdRule(first, last, to)
    if _WILD.isdisjoint(origin):
        number = _known(option, kind, origin)
        return IdRule(number, number, to)
    return IdRule(0, 0, to, origin)
