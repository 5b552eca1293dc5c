"""The tools as functions of `pcircle`: `pcircle.copy`, `pcircle.find`, and so on.

Each function runs a command. Its keyword arguments are the options of the command. Most functions
return the object that the command writes with `--json`; `find` and `entries` return iterators.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from pcircle.library.call import Call, Cancel, arguments_of, flag_of, path_of, run, run_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from pcircle.cli.program import TreeReport
    from pcircle.library import keywords
    from pcircle.library.stream import Results
    from pcircle.tools.common.copy_console import CopyReport
    from pcircle.tools.fbcast.command import BroadcastReport
    from pcircle.tools.fls.rows import ListRow
    from pcircle.tools.fmirror.report import MirrorReport
    from pcircle.tools.fprof.reports.report import ProfileReport
    from pcircle.tools.fsum.command import SumReport

AnyPath: TypeAlias = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

# Without any of these, the command would interpret the first path as a mode.
_CHANGES = (
    *("mode", "owner", "group", "acl", "files", "dirs", "reference", "usermap", "groupmap"),
    *("acl_remove", "default_acl", "apply"),
)
# Actions of `find` whose output is lines; the implicit action ends each path with NUL.
_LINES = frozenset(("-print", "-printf", "-ls", "-json", "-csv", "-count", "-du"))


def copy(
    source: AnyPath | Iterable[AnyPath], target: AnyPath, **options: Unpack[keywords.CopyKeywords]
) -> CopyReport:
    """Copy files and directory trees, like `fcp`.

    As with cp, if `target` is an existing directory, the copies are placed in it. Several sources
    require such a directory.

    >>> report = pcircle.copy("data", "copy", preserve=True, exclude=["*.tmp", "*.log"], jobs=2)
    >>> report.exit_code, report.files, report.failures
    (0, 3, ())
    """
    report: CopyReport = run("copy", [*_paths(source), target], options)
    return report


def sign(*paths: AnyPath, **options: Unpack[keywords.SignKeywords]) -> SumReport:
    """Compute the signature of each path, like `fsum`.

    `output` writes a manifest for `check`. `format="coreutils"` writes the digest of each file to
    `stdout` instead.

    >>> report = pcircle.sign("data", output="data.manifest", jobs=2)
    >>> report.signature
    'pcsig1:xxh128:...'
    """
    report: SumReport = run("sign", paths, options)
    return report


def check(
    manifest: AnyPath,
    root: AnyPath | None = None,
    *,
    rot: bool = False,
    **options: Unpack[keywords.CheckKeywords],
) -> SumReport:
    """Compare a tree with a manifest or a checksum list, like `fsum --check`.

    `root` defaults to the path that the manifest records. If `rot` is set, the check reports only
    files whose content has changed although size and time have not. The `exit_code` of the report
    is 3 if there are differences.

    >>> report = pcircle.sign("data", output="data.manifest")
    >>> open("data/new", "w").close()
    >>> report = pcircle.check("data.manifest", quick=True)
    >>> report.exit_code, [(entry.what, entry.path) for entry in report.differences]
    (3, [('new', 'new')])
    """
    mode = "rot" if flag_of(rot, "check(): 'rot'") else "check"
    word = f"--{mode}={path_of(manifest, 'check(): manifest')}"
    report: SumReport = run("check", () if root is None else (root,), options, [word])
    return report


def profile(*paths: AnyPath, **options: Unpack[keywords.ProfileKeywords]) -> ProfileReport:
    """Profile trees, by default `.`, by count, size, age, owner and more, like `fprof`.

    >>> report = pcircle.profile("data", top=1, by="ext", jobs=2)
    >>> report.counts.files.number, report.top.largest[0].path
    (3, 'data/sub/c')
    """
    report: ProfileReport = run("profile", paths, options)
    return report


def find(*words: AnyPath, **options: Unpack[keywords.FindKeywords]) -> Results[str]:
    """Find entries of trees by an expression, like `ffind`; return an iterator over their paths.

    `words` are paths, followed by the words of an expression. A path that is not UTF-8 is decoded
    as by `os.fsdecode`. If the expression has actions, the elements are the lines that the actions
    print.

    >>> found = pcircle.find("data", "-type", "f", "-size", "+1k", sort="path", jobs=1)
    >>> list(found)
    ['data/b', 'data/sub/c']
    >>> found.report.exit_code
    0
    """
    given = [path_of(word, "find(): a word") for word in words]
    end = b"\0" if _LINES.isdisjoint(given) or "-print0" in given else b"\n"

    return _streamed("find", given, options, end, os.fsdecode)


def entries(*paths: AnyPath, **options: Unpack[keywords.EntriesKeywords]) -> Results[ListRow]:
    """List entries with all attributes, like `fls`; return an iterator over rows.

    Each directory is sorted by name, so the first row appears when all entries have been read. With
    `sort="none"`, rows appear as they are found.

    >>> rows = pcircle.entries("data", recursive=True, sort="-size", jobs=1)
    >>> [(row.path, row.kind, row.size) for row in rows if row.kind == "f"]
    [('data/b', 'f', 2000), ('data/a', 'f', 1000), ('data/sub/c', 'f', 3000)]
    """
    import msgspec

    from pcircle.tools.fls.rows import ListRow

    given = ["--", *(path_of(path, "entries(): a path") for path in paths)]
    return _streamed("entries", given, options, b"\n", msgspec.json.Decoder(ListRow).decode)


def compare(a: AnyPath, b: AnyPath, **options: Unpack[keywords.CompareKeywords]) -> TreeReport:
    """Compare two trees, like `fdiff`; the `exit_code` of the report is 3 if they differ.

    `stdout` receives a line for each difference, and the file `json_lines` an object.

    >>> report = pcircle.compare("data", "data/sub", contents=True, jobs=1)
    >>> report.exit_code, report.counts["only_a"], report.counts["only_b"]
    (3, 3, 1)
    """
    report: TreeReport = run("compare", (a, b), options)
    return report


def mirror(
    source: AnyPath | None = None,
    target: AnyPath | None = None,
    **options: Unpack[keywords.MirrorKeywords],
) -> MirrorReport:
    """Make `target` match `source`, like `fmirror`.

    `apply` carries out a plan that an earlier call wrote; such a call takes no paths.

    >>> report = pcircle.mirror("data", "backup", delete=True, max_delete="10%", jobs=2)
    >>> report.exit_code, report.files, report.removed
    (0, 3, 0)
    """
    paths = [path for path in (source, target) if path is not None]
    report: MirrorReport = run("mirror", paths, options)
    return report


def remove(*paths: AnyPath, **options: Unpack[keywords.RemoveKeywords]) -> TreeReport:
    """Remove files and trees, like `frm`. A directory requires `recursive=True`.

    >>> report = pcircle.remove("data", recursive=True, kind="f", min_size=3000, jobs=2)
    >>> report.exit_code, report.counts["files"]
    (0, 1)
    """
    report: TreeReport = run("remove", paths, options)
    return report


def change(*paths: AnyPath, **options: Unpack[keywords.ChangeKeywords]) -> TreeReport:
    """Change modes, owners, groups and access control lists, like `fchmod`.

    >>> report = pcircle.change("data", mode="g+rwX", recursive=True, jobs=2)
    >>> report.exit_code, report.counts["changed"]
    (0, 5)
    """
    report: TreeReport = run("change", paths, options, one_of=_CHANGES)
    return report


def broadcast(
    source: AnyPath | Iterable[AnyPath],
    target: AnyPath,
    **options: Unpack[keywords.BroadcastKeywords],
) -> BroadcastReport:
    """Copy files and trees to the directory `target` on every node, like `fbcast`.

    >>> report = pcircle.broadcast("data", "node{rank}", jobs=2, record_dir="records")
    >>> report.exit_code, report.nodes, report.entries
    (0, 2, 5)
    """
    report: BroadcastReport = run("broadcast", [*_paths(source), target], options)
    return report


def _paths(paths: object) -> list[object]:
    """Return an argument as a list of operands; `run` refuses those of a wrong type."""
    is_one = isinstance(paths, str | bytes | bytearray | os.PathLike)
    return list(paths) if isinstance(paths, Iterable) and not is_one else [paths]


def _streamed(
    function: str,
    operands: Sequence[str],
    options: Mapping[str, object],
    end: bytes,
    parse: Callable[[bytes], Any],
) -> Results[Any]:
    """Return the results of a tool that prints records, each followed by `end`.

    Raises TypeError for invalid arguments.
    """
    from pcircle.library.stream import Results

    found, own = arguments_of(function, options)
    cancel = own.pop("cancel", None)
    words = [*found, *operands]

    def start(receive: Callable[[bytes], object], cancel: Cancel) -> TreeReport:
        report: TreeReport = run_words(function, words, Call(stdout=receive, cancel=cancel, **own))
        return report

    return Results(start, end, parse, cancel)
