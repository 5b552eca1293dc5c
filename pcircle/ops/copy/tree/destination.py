"""Determines the destination of each SRC, checks it before any change, and parses `--stripe`.

The rules are those of cp. If DST is an existing directory, the copy is `DST/basename(SRC)`;
otherwise it is DST. Several sources require an existing directory. `SRC/.` and `SRC/..` have no
base name, so their contents are copied into DST. With `-T`, DST is the copy even if it exists.

For `--stripe`, rank 0 determines once whether each side is on Lustre, with one system call per file
system of the sources and one per target directory. `pcircle.ops.copy.entry.attributes` sets the
layouts.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError, operand_error
from pcircle.core.units import is_whole, parse_size
from pcircle.fs.attributes.lustre import (
    ALL_STRIPES,
    MAX_STRIPES,
    STRIPE_UNIT_BYTES,
    Stripes,
    compose,
    default_of_file_system,
    is_lustre,
    requested_layout,
)
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.directories import closing_fd, directory_and_ancestors
from pcircle.fs.safe_open import Untrusted, place_of, refuse_pseudo
from pcircle.ops.copy.entry.settings import Striping
from pcircle.ops.copy.tree.items import DIRECTORY, FILE, LINK, SPECIAL, CopyRoot


def resolve(
    sources: Sequence[bytes],
    target: bytes,
    *,
    into: bool = False,
    exact: bool = False,
    follow: bool = False,
    force: bool = False,
) -> tuple[CopyRoot, ...]:
    """Return the roots of a copy.

    With `into` (`-t`), the target must be a directory; with `exact` (`-T`), the target is the copy
    itself. With `follow`, a source that is a symbolic link stands for its target. With `force`
    (`-f`), a link that leads to itself is replaced by a file. Raises UsageError for operands that
    cp would refuse or whose copy would destroy data.
    """
    statuses = [_source_status(source, follow=follow) for source in sources]
    existing = _target_status(target)
    is_directory = existing is not None and stat.S_ISDIR(existing.st_mode)
    if into and not is_directory:
        raise UsageError(f"target '{show(target)}' is not a directory")
    if len(sources) > 1 and (exact or not is_directory):
        raise UsageError(f"several sources, but target '{show(target)}' is not a directory")
    if is_directory and not exact:
        roots = [_inside(s, status, target) for s, status in zip(sources, statuses, strict=True)]
        _refuse_same_names(roots)
    else:
        if not (force or existing) and stat.S_ISREG(statuses[0].st_mode):
            _status(target, follow=True)  # raises UsageError for a link that leads to itself
        roots = [_becoming(sources[0], statuses[0], target, existing)]
    for root, status in zip(roots, statuses, strict=True):
        _refuse_self(root, status)
    _refuse_untrusted(roots)
    return tuple(map(_through_link, roots)) if follow else tuple(roots)


def _through_link(root: CopyRoot) -> CopyRoot:
    """Return the root, with the source resolved if it is a symbolic link."""
    source = root.source_shown
    if not os.path.islink(source):
        return root
    if root.kind == DIRECTORY:
        return replace(root, source_holder=source, source_name=b"")
    holder, name = os.path.split(os.path.realpath(source))
    return replace(root, source_holder=holder, source_name=name)


def _status(path: bytes, *, follow: bool) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise operand_error(f"cannot use '{show(path)}': {error.strerror}", error) from None


def _target_status(path: bytes) -> os.stat_result | None:
    """Return the status of a path, following links; None if it is missing or loops."""
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno != errno.ELOOP or not os.path.islink(path):
            return _status(path, follow=True)
        return None


def _source_status(source: bytes, *, follow: bool) -> os.stat_result:
    try:
        return os.stat(source, follow_symlinks=follow)
    except ValueError as error:
        raise UsageError(f"cannot use source '{show(source)}': {error}") from None
    except OSError as error:
        raise operand_error(
            f"cannot use source '{show(source)}': {error.strerror}", error
        ) from None


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return DIRECTORY
    if stat.S_ISREG(mode):
        return FILE
    return LINK if stat.S_ISLNK(mode) else SPECIAL


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Return the directory and the name of a path; the name is empty for `/`, `.` and `..`."""
    stripped = path.rstrip(b"/")
    holder, name = os.path.split(stripped)
    if name in (b"", b".", b".."):
        return path, b""
    return holder or b".", name


def _root(
    source: bytes, status: os.stat_result, target: bytes, holder: bytes, name: bytes
) -> CopyRoot:
    source_holder, source_name = _split(source)
    if source.endswith(b"/") and stat.S_ISDIR(status.st_mode):
        source_holder, source_name = source, b""  # a trailing slash follows a link
    return CopyRoot(
        source_holder=source_holder,
        source_name=source_name,
        target_holder=holder,
        target_name=name,
        kind=_kind(status.st_mode),
        source_shown=source,
        target_shown=target,
        file_system=status.st_dev,
    )


def _inside(source: bytes, status: os.stat_result, target: bytes) -> CopyRoot:
    name = _split(source)[1]
    if not name and not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"source '{show(source)}' has no base name")
    shown = os.path.join(target, name) if name else target
    return _root(source, status, shown, target, name)


def _becoming(
    source: bytes, status: os.stat_result, target: bytes, existing: os.stat_result | None
) -> CopyRoot:
    directory = stat.S_ISDIR(status.st_mode)
    holder, name = _split(target)
    if existing is None and not name:
        raise _uncreatable(target, target.rstrip(b"/"))
    if directory:
        if existing is not None and stat.S_ISDIR(existing.st_mode):
            return _root(source, status, target, target, b"")
        if _status(target, follow=False) is not None:
            raise UsageError(
                f"cannot replace '{show(target)}', which is not a directory, "
                f"with directory '{show(source)}'"
            )
    else:
        # A symbolic link replaces another one, wherever the old one leads.
        at_name = _status(target, follow=False)
        links = stat.S_ISLNK(status.st_mode) and at_name and stat.S_ISLNK(at_name.st_mode)
        _refuse_kind(source, target, at_name if links else existing)
    parent = _status(holder, follow=True)
    if parent is None or not stat.S_ISDIR(parent.st_mode):
        raise _uncreatable(target, holder)
    return _root(source, status, target, holder, name)


def _uncreatable(target: bytes, holder: bytes) -> UsageError:
    """Return the error that names the first missing directory on the path of a target."""
    at = holder
    while above := os.path.dirname(at.rstrip(b"/")):
        if _status(above, follow=True) is not None:
            break
        at = above
    reason = "does not exist" if _status(at, follow=True) is None else "is not a directory"
    return UsageError(f"cannot create '{show(target)}': '{show(at)}' {reason}")


def _refuse_kind(source: bytes, target: bytes, existing: os.stat_result | None) -> None:
    if target.endswith(b"/"):
        raise UsageError(f"cannot create '{show(target)}': Not a directory")
    at_name = _status(target, follow=False)
    if existing is not None and stat.S_ISDIR(existing.st_mode):
        raise UsageError(
            f"cannot replace directory '{show(target)}' "
            f"with '{show(source)}', which is not a directory"
        )
    kinds = [_kind(status.st_mode) for status in (at_name, existing) if status is not None]
    if SPECIAL in kinds:
        raise UsageError(
            f"refusing to replace '{show(target)}': neither a regular file nor a symbolic link"
        )


def _refuse_same_names(roots: Sequence[CopyRoot]) -> None:
    seen: dict[bytes, CopyRoot] = {}
    for root in roots:
        other = seen.setdefault(root.target_name, root)
        if other is not root:
            raise UsageError(
                f"'{show(other.source_shown)}' and '{show(root.source_shown)}' "
                f"would both become '{show(root.target_shown)}'"
            )


def _refuse_self(root: CopyRoot, status: os.stat_result) -> None:
    """Raise UsageError if a file would be copied onto itself, or a directory into itself."""
    source, target = show(root.source_shown), show(root.target_shown)
    holder, name = root.target_holder, root.target_name
    at_target = os.path.join(holder, name) if name else holder
    if root.kind != DIRECTORY:
        mine = {_identity(status), _identity(_status_or_none(root.source_shown))}
        theirs = {_identity(_status(at_target, follow=False))}
        if root.kind != LINK:  # two links may lead to the same file, which is not touched
            theirs.add(_identity(_status_or_none(at_target)))
        if (mine & theirs) - {None}:
            raise UsageError(f"'{source}' and '{target}' are the same file")
        return
    own = (status.st_dev, status.st_ino)
    if own == _identity(_status_or_none(at_target)) or own in set(_at_and_above(holder)):
        raise UsageError(f"cannot copy directory '{source}' into itself, '{target}'")


def _refuse_untrusted(roots: Sequence[CopyRoot]) -> None:
    """Raise UsageError for a destination that others could redirect or that is a pseudo file."""
    for holder in dict.fromkeys(root.target_holder for root in roots):
        siblings = [root for root in roots if root.target_holder == holder]
        shown = show(siblings[0].target_shown)
        try:
            with place_of(os.path.join(holder, b"")) as place:
                refuse_pseudo(place)
                for root in siblings:
                    shown = show(root.target_shown)
                    if root.kind == LINK or not root.target_name:
                        continue  # a link replaces a link, wherever the old one leads
                    if _is_link(place.fd, root.target_name):
                        _refuse_link(os.path.join(holder, root.target_name))
        except Untrusted as error:
            raise UsageError(f"refusing to write '{shown}': {error.strerror}") from None
        except OSError:
            pass  # using the path later reports the error


def _is_link(directory_fd: int, name: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _refuse_link(path: bytes) -> None:
    """Raise Untrusted if a link that the copy would replace is not safe to replace."""
    try:
        with place_of(path) as place:
            refuse_pseudo(place)
    except Untrusted:
        raise
    except OSError:
        pass  # a dangling link is replaced like any other


def _at_and_above(path: bytes) -> Iterator[tuple[int, int]]:
    """Yield the identities of a path and of its parents, up to the first inaccessible one."""
    # Using the path later reports an error, and the walk also detects its own copy.
    with suppress(OSError), closing_fd(os.open(path, os.O_PATH | os.O_DIRECTORY)) as fd:
        yield from directory_and_ancestors(fd)


def _status_or_none(path: bytes) -> os.stat_result | None:
    # A dangling or looping link leads to nothing that could be compared.
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(status: os.stat_result | None) -> tuple[int, int] | None:
    return None if status is None else (status.st_dev, status.st_ino)


KEEP, DEFAULT = "keep", "default"


def read_wish(text: str) -> str | Stripes:
    """Parse the value of `--stripe`: `KEEP`, `DEFAULT` or a layout.

    Raises UsageError if invalid.
    """
    if text in (KEEP, DEFAULT):
        return text
    many, colon, size = text.partition(":")
    if many in ("all", "-1"):
        count = ALL_STRIPES
    elif is_whole(many) and len(many) < 9 and int(many) <= MAX_STRIPES:
        count = int(many)
    else:
        raise UsageError(
            f"--stripe: '{text}' is not keep, default, COUNT or COUNT:SIZE "
            f"(COUNT up to {MAX_STRIPES}, or all)"
        )
    if not colon:
        return Stripes(count=count)
    try:
        stripe_bytes = parse_size(size)
    except ValueError as error:
        raise UsageError(f"--stripe: {error}") from None
    if stripe_bytes % STRIPE_UNIT_BYTES or not 0 < stripe_bytes < 1 << 32:
        raise UsageError(f"--stripe: '{size}' is not a multiple of 64k below 4G")
    return Stripes(count=count, stripe_bytes=stripe_bytes)


def demand(text: str | None, keep: PreservedAttributes) -> PreservedAttributes:
    """Return the attributes to preserve, including those that `--stripe` requests.

    Raises UsageError if the value is invalid or conflicts with `--preserve=stripe`.
    """
    if text is None:
        return keep
    wish = read_wish(text)
    if wish != KEEP and keep.stripe_demanded:
        raise UsageError(f"--stripe={text} cannot be combined with --preserve=stripe")
    return replace(keep, stripe=wish == KEEP, stripe_demanded=wish != DEFAULT)


def striping_of(text: str | None, keep: PreservedAttributes, roots: Sequence[CopyRoot]) -> Striping:
    """Return how layouts are treated, given `--stripe` and the result of `demand`.

    Raises UsageError if a file system is not Lustre but must be.
    """
    wish = DEFAULT if text is None else read_wish(text)
    targets = {root.target_holder: root.target_shown for root in roots}
    strange = [shown for holder, shown in targets.items() if not is_lustre(holder)]
    on_target = not strange
    sources = _sources(roots)
    on_source = {place: is_lustre(place) for place in sources}
    if wish != DEFAULT and strange:
        raise UsageError(f"--stripe={text}: '{show(strange[0])}' is not on Lustre")
    for place, found in on_source.items():
        if wish == KEEP and not found:
            raise UsageError(f"--stripe={text}: '{show(sources[place])}' is not on Lustre")
    keeps = keep.stripe and any(on_source.values()) and (on_target or keep.stripe_demanded)
    return Striping(
        source=any(on_source.values()),
        target=on_target,
        keep=keeps,
        layout=compose(wish) if isinstance(wish, Stripes) else b"",
        defaults=_defaults(on_source) if keeps else (),
    )


def _sources(roots: Sequence[CopyRoot]) -> dict[bytes, bytes]:
    """Return one directory per file system of the sources, with the path for messages."""
    first: dict[int, CopyRoot] = {}
    for root in roots:
        first.setdefault(root.file_system, root)
    return {
        os.path.join(root.source_holder, root.source_name)
        if root.kind == DIRECTORY
        else root.source_holder: root.source_shown
        for root in first.values()
    }


def _defaults(places: dict[bytes, bool]) -> tuple[bytes, ...]:
    found = set()
    for place in (place for place, lustre in places.items() if lustre):
        # A default that cannot be read or parsed cannot be read from directories either.
        with suppress(OSError, ValueError):
            value = default_of_file_system(place)
            if value is not None:
                found.add(requested_layout(value))
    return tuple(sorted(found))
