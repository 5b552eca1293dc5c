"""The request of fchmod, fchown or fchgrp in a form common to all, and the root of each PATH.

The root is the entry itself or, if links are followed, the target of a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from pcircle.cli.arguments import refuse_remote
from pcircle.cli.ids import Owner, group_of, number_of, read_owner
from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.attributes.modes import parse_mode
from pcircle.fs.open_flags import OPEN_ENTRY_PATH
from pcircle.fs.safe_open import MAX_LINKS, directory, place_of
from pcircle.tools.fchmod.options import ModeOptions
from pcircle.tools.fchmod.state.lists import Edit, read_edits
from pcircle.tools.fchmod.state.resolve import ChangeRequest
from pcircle.walk.roots import Root

_PREFIXES = ("f:", "d:")


class RequestedChange(NamedTuple):
    """The request of a command line, and its PATHs."""

    request: ChangeRequest
    paths: list[bytes]


def request_of(tool: str, options: ModeOptions, operands: Sequence[str]) -> RequestedChange:
    """Return the request and the PATHs of a command line; raise UsageError if it is invalid."""
    operands = list(operands)
    if options.apply is not None:
        return RequestedChange(ChangeRequest(), list(map(os.fsencode, operands)))
    make: Callable[[ModeOptions, list[str]], ChangeRequest] = _MAKERS[tool]
    request = make(options, operands)
    refuse_remote(operands)
    found = options.from_owner or Owner(None, None)
    request = msgspec.structs.replace(
        request,
        umask=_umask(),
        from_uid=found.uid,
        from_gid=found.gid,
        users=options.user_map,
        groups=options.group_map,
        edits=_edits(options),
        no_lists=options.acl_remove == "all",
        set_id="keep" if options.keep_setid else "none" if options.no_setid else "clear",
    )
    if request.uid is not None and request.users:
        raise UsageError("--usermap cannot be combined with an owner")
    if request.gid is not None and request.groups:
        raise UsageError("--groupmap cannot be combined with a group")
    return RequestedChange(request, list(map(os.fsencode, operands)))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---- modes ---------------------------------------------------------------------------------------


def _of_fchmod(options: ModeOptions, operands: list[str]) -> ChangeRequest:
    """Return the request of fchmod, whose first operand is usually a MODE."""
    text = options.mode
    if not options.names_change:
        if not operands:
            raise UsageError("missing operand MODE")
        text = operands.pop(0)
        while text.startswith(_PREFIXES) and operands and operands[0].startswith(_PREFIXES):
            text += " " + operands.pop(0)
    if options.reference is not None:
        if text is not None or options.files is not None or options.dirs is not None:
            raise UsageError("--reference cannot be combined with a mode")
        text = f"{stat.S_IMODE(_status(options.reference).st_mode):05o}"
    for_directories = for_others = None
    if text is not None:
        for_others, for_directories = _kinds(text)
    if options.files is not None:
        for_others = options.files
    if options.dirs is not None:
        for_directories = options.dirs
    for mode in (for_directories, for_others):
        if mode is not None:
            _check(mode, options)
    return ChangeRequest(for_directories, for_others, uid=options.uid, gid=options.gid)


def _kinds(text: str) -> tuple[str | None, str | None]:
    """Split a MODE into modes for files and for directories, as in ``f:u+rw d:u+rwx``."""
    words = text.split()
    if not any(word.startswith(_PREFIXES) for word in words):
        return text, text
    found: dict[str, str] = {}
    for word in words:
        prefix, mode = word[:2], word[2:]
        if prefix not in _PREFIXES or prefix in found:
            raise UsageError(f"invalid mode '{show(os.fsencode(text))}'")
        found[prefix] = mode
    return found.get("f:"), found.get("d:")


def _check(text: str, options: ModeOptions) -> None:
    try:
        parse_mode(text)
    except ValueError:
        more = "; to remove execute permission, write a-x" if options.one_file_system else ""
        raise UsageError(f"invalid mode '{show(os.fsencode(text))}'{more}") from None


# ---- owners --------------------------------------------------------------------------------------


def _of_fchown(options: ModeOptions, operands: list[str]) -> ChangeRequest:
    owner = Owner(None, None)
    if options.reference is not None:
        status = _status(options.reference)
        owner = Owner(status.st_uid, status.st_gid)
    elif not options.maps:
        if not operands:
            raise UsageError("missing operand OWNER")
        owner = read_owner("OWNER", operands.pop(0))
    return ChangeRequest(uid=owner.uid, gid=owner.gid)


def _of_fchgrp(options: ModeOptions, operands: list[str]) -> ChangeRequest:
    if options.reference is not None:
        return ChangeRequest(gid=_status(options.reference).st_gid)
    if options.maps:
        return ChangeRequest()
    if not operands:
        raise UsageError("missing operand GROUP")
    word = operands.pop(0)
    return ChangeRequest(gid=group_of("GROUP", word) if word else None)


_MAKERS = {"fchmod": _of_fchmod, "fchown": _of_fchown, "fchgrp": _of_fchgrp}


def _status(name: str) -> os.stat_result:
    """Return the status of the FILE of --reference; raise UsageError if that fails."""
    try:
        return os.stat(os.fsencode(name))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shown = show(os.fsencode(name))
        raise UsageError(f"--reference: cannot look up '{shown}': {reason}") from None


# ---- lists ---------------------------------------------------------------------------------------


def _edits(options: ModeOptions) -> tuple[Edit, ...]:
    found: tuple[Edit, ...] = ()
    removed = None if options.acl_remove == "all" else options.acl_remove
    for option, text in (("--acl-remove", removed), ("--acl", options.acl)):
        if text is not None:
            found += _read(option, text, removes=option == "--acl-remove")
    if options.default_acl is not None:
        found += _read("--default-acl", options.default_acl, default=True)
    return found


def _read(
    option: str, text: str, *, removes: bool = False, default: bool = False
) -> tuple[Edit, ...]:
    try:
        return read_edits(text, number_of, removes=removes, default=default)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


# ---- roots ---------------------------------------------------------------------------------------

_DOTS = (b"", b".", b"..")


def root_of(path: bytes, *, recursive: bool, follow: bool, keeps_root: bool) -> Root:
    """Return the root of a PATH, which is entered if it is a directory and `recursive` is set.

    A link is not followed if another user could have created it. Raise UsageError for the root
    directory of the file system if `keeps_root` is set, and OSError if the PATH cannot be opened.
    """
    holder, name, status = _found(path, follow=follow)
    if keeps_root and recursive and stat.S_ISDIR(status.st_mode):
        top = os.stat(b"/")
        if (top.st_dev, top.st_ino) == (status.st_dev, status.st_ino):
            raise UsageError(
                f"refusing to change '{show(path)}' recursively: it is the root directory; "
                "to allow this, add --no-preserve-root"
            )
    if not (recursive and stat.S_ISDIR(status.st_mode)):
        return Root(holder, name or b".", path)
    if name in _DOTS:
        return Root(os.path.join(holder, name), b"", path)
    return Root(holder, b"", path, name)


def _found(path: bytes, *, follow: bool) -> tuple[bytes, bytes, os.stat_result]:
    """Return the parent directory of an entry, its name there, and its status."""
    for _ in range(MAX_LINKS):
        holder, name = os.path.split(path.rstrip(b"/") or b"/")
        holder = holder or b"."
        above = directory(holder)
        try:
            fd = os.open(name or b".", OPEN_ENTRY_PATH, dir_fd=above)
            try:
                status = os.fstat(fd)
                is_link = stat.S_ISLNK(status.st_mode)
                if not is_link or not (follow or path.endswith(b"/")):
                    if path.endswith(b"/") and not stat.S_ISDIR(status.st_mode):
                        raise NotADirectoryError(20, os.strerror(20))
                    return holder, name, status
            finally:
                os.close(fd)
        finally:
            os.close(above)
        with place_of(path.rstrip(b"/")) as place:  # which follows only trusted links
            if place.status is None:
                raise FileNotFoundError(2, os.strerror(2))
            path = place.path
    raise OSError(40, os.strerror(40))
