"""The program of fchmod, fchown and fchgrp, which interprets the options and runs the change.

The request of a command line has a form common to all three. The root of a PATH is the entry itself
or, if links are followed, the target of a link.
"""

from __future__ import annotations

import argparse
import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from pcircle.cli.arguments import refuse_remote
from pcircle.cli.change_program import ChangeConsole, ChangeProgram
from pcircle.cli.option_values import Owner, group_of, number_of, read_owner
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, operand_error, worst
from pcircle.core.units import plural
from pcircle.fs.attributes.modes import parse_mode
from pcircle.fs.open_flags import OPEN_ENTRY_PATH
from pcircle.fs.safe_open import MAX_LINKS, directory, place_of
from pcircle.jobs.action_log import ActionOutput
from pcircle.jobs.failures import Failure, LogFile
from pcircle.jobs.plan_file import LoadedPlan, head, read_plan
from pcircle.jobs.tree_task import resolve
from pcircle.runtime import Outcome
from pcircle.tools.fchmod.entry_changer import Denied, ModeCounters, ModePlan, Unmapped, user
from pcircle.tools.fchmod.options import ModeOptions, OwnerOptions
from pcircle.tools.fchmod.resolve import ChangeRequest, Edit, read_edits
from pcircle.tools.fchmod.state import check_mark
from pcircle.tools.fchmod.visitor import ModeTask
from pcircle.walk.roots import Root

_PREFIXES = ("f:", "d:")


def _request_of(
    tool: str, options: ModeOptions, operands: Sequence[str]
) -> tuple[ChangeRequest, list[bytes]]:
    """Return the request and the PATHs of a command line; raise UsageError if it is invalid."""
    operands = list(operands)
    if options.apply is not None:
        return ChangeRequest(), list(map(os.fsencode, operands))
    request = _MAKERS[tool](options, operands)
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
    return request, list(map(os.fsencode, operands))


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
    texts = {"--acl-remove": removed, "--acl": options.acl, "--default-acl": options.default_acl}
    for name, text in texts.items():
        if text is not None:
            removes, default = name == "--acl-remove", name == "--default-acl"
            try:
                found += read_edits(text, number_of, removes=removes, default=default)
            except ValueError as error:
                raise UsageError(f"{name}: {error}") from None
    return found


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


_SHOWN = 10  # the maximum number of owners or ids in a remark


class ModeConsole(ChangeConsole):
    """Prints changed entries, failures and the summary."""

    _program: ModeProgram

    def __init__(self, program: ModeProgram, log: LogFile | None) -> None:
        super().__init__(program, log)
        self._denied: Counter[int] = Counter()
        self._unmapped: tuple[Counter[int], Counter[int]] = Counter(), Counter()

    def notice(self, source: int, values: Sequence[object]) -> None:
        for value in values:
            if isinstance(value, Denied):
                self._denied[value.uid] += value.count
            elif isinstance(value, Unmapped):
                self._unmapped[value.is_group][value.number] += value.count
        super().notice(source, values)

    def is_silent(self, failure: Failure) -> bool:
        return failure.errno == errno.EPERM and bool(self._program.options.hides_denied)

    def summary(self, total: ModeCounters) -> str:
        dry = "would be " * self._program.options.dry
        parts = [f"{plural(total.changed, 'entry', 'entries')} {dry}changed"]
        unchanged = total.completed - total.changed
        remaining = {
            "unchanged": max(0, unchanged),
            "kept": total.kept + total.left_out,
            "further names": total.linked,
            "vanished": total.vanished,
        }
        parts += [f"{count:,} {what}" for what, count in remaining.items() if count]
        return ", ".join(parts)

    def remarks(self, total: ModeCounters, code: int) -> Iterable[str]:
        yield from super().remarks(total, code)
        if self._denied:
            yield f"not permitted: {_listed(self._denied, user)}"
        for what, counts in zip(("users", "groups"), self._unmapped, strict=True):
            if counts:
                yield f"{what} without a mapping: {_listed(counts, str)}"

    def end(self, outcome: Outcome[dict[int, int]]) -> tuple[int, list[str]]:
        """Complete the undo file, even if the job was stopped, and end the console."""
        if self._program.options.undo is not None and outcome.code:
            outcome = self.with_plan_ended(outcome, self.planned)
        code, reasons = super().end(outcome)
        applied = self._program.applied
        if applied is not None and applied.cut:
            code = worst((code, EntriesFailed.exit_code))
            shown = show(os.fsencode(self._program.options.apply or ""))
            reasons.append(f"'{shown}' is incomplete: only the entries that it lists were restored")
        return code, reasons


def _listed(counts: Counter[int], name_of: Callable[[int], str]) -> str:
    shown = [f"{count:,} of {name_of(number)}" for number, count in counts.most_common(_SHOWN)]
    more = len(counts) - len(shown)
    return ", ".join(shown + ([f"{more:,} more"] if more else []))


class ModeProgram(ChangeProgram):
    """The program of fchmod, fchown or fchgrp."""

    plan_type: ClassVar[type[ModePlan]] = ModePlan
    task_type: ClassVar[type[ModeTask]] = ModeTask
    console_type: ClassVar[type[ModeConsole]] = ModeConsole
    options: ModeOptions

    def __init__(
        self, tool: str, options: ModeOptions, paths: Sequence[bytes], **more: object
    ) -> None:
        self.name = tool
        super().__init__(options, paths, tool=tool, **more)
        if options.undo is not None:
            written = (options.list_out, options.json_lines, options.error_log)
            shown = show(os.fsencode(options.undo))
            if options.undo in (*written, options.files_from):
                raise UsageError(f"'{shown}' is used by two options")
            if _is_nonempty(options.undo):
                reason = "may be the record of an earlier run; specify a different file"
                raise UsageError(f"--undo: '{shown}' {reason}")

    def read_plan(self) -> LoadedPlan:
        """Read an undo file; each of the three tools can undo the changes of the others."""
        found = read_plan(self.options.apply or "", "fchmod", check_mark, may_be_cut=True)
        self.applied: LoadedPlan | None = found
        return found

    def roots(self) -> tuple[Root, ...]:
        options = self.options
        if options.apply is not None:
            return self.read_plan().roots
        if options.files_from is not None:
            return resolve(self.paths)
        return tuple(map(self._root, self.paths))

    def _root(self, path: bytes) -> Root:
        options = self.options
        # As in coreutils, `chown -R` follows links only with -H or -L.
        follow = not (options.no_dereference or options.never)
        if self.name != "fchmod" and options.recursive:
            follow = bool(options.operand_links or options.all_links)
        try:
            return root_of(
                path,
                recursive=options.recursive,
                follow=follow,
                keeps_root=options.preserve_root or not options.no_preserve_root,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise operand_error(f"cannot access '{show(path)}': {reason}", error) from None

    def decided(self, roots: tuple[Root, ...], ranks: int) -> dict[str, Any]:
        options, found = self.options, super().decided(roots, ranks)
        verbosity = 2 if options.verbose else int(options.changes)
        acts: ActionOutput = found["acts"]
        word = "changed" if verbosity else ""
        found["acts"] = ActionOutput(acts.lines, acts.end, word, options.undo is not None)
        return found | {"verbosity": verbosity}

    def begin(self, roots: tuple[Root, ...]) -> None:
        super().begin(roots)
        if self.options.undo is not None:
            from pcircle.jobs.plan_output import PlanFile  # few runs write a plan

            self.planned: PlanFile | None = PlanFile(self.options.undo, "--undo", "undo file")
            self.planned.append(head("fchmod", roots, self.directory()))


def _is_nonempty(name: str) -> bool:
    """Return whether a file is known to exist and not to be empty."""
    try:
        return os.stat(os.fsencode(name)).st_size > 0
    except (OSError, ValueError):
        return False


def program_of(tool: str, options: ModeOptions, operands: Sequence[str]) -> ModeProgram:
    """Return the program of a change; raise UsageError if the options or operands are invalid."""
    is_listed = options.files_from is not None
    request, paths = _request_of(tool, options, operands)
    if not paths and is_listed:
        paths = [b"."]
    return ModeProgram(
        tool,
        options,
        paths,
        request=request,
        recursive=options.recursive and options.apply is None,
        listed=is_listed or options.apply is not None,
        silent=options.hides_denied,
        undo=options.undo is not None,
        follow=options.recursive and options.all_links,
    )


def change_typed(tool: str, args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    declared = ModeOptions if tool == "fchmod" else OwnerOptions
    return program_of(tool, declared.of(args), args.operands).run()
