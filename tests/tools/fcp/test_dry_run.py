"""`--dry-run` predicts the run: exit code and counts, over scenes of all types.

Hypothesis generates scenes: the entries of the source and, under the same few names, of the
destination; with the options that apply to both. The dry run must touch nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pcircle.core.errors import UsageError
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from tests.tools.fcp.running import copy_here, document
from tests.tools.fcp.trees import write_file

OLD_NS, NEW_NS = 10**18, 10**18 + 5 * 10**9
_ALL: dict[str, Any] = dict.fromkeys(PreservedAttributes.__struct_fields__, True)
ALL = PreservedAttributes(**{**_ALL, "given": None})
COUNTS = (
    "files", "directories", "directories_created", "directories_touched", "links", "special",
    "skipped", "failed", "exit_code",
)  # fmt: skip

Node = Any

names = st.sampled_from([b"a", b"b", b"c", b"d"])
times = st.sampled_from([OLD_NS, NEW_NS])
leaves = st.one_of(
    st.tuples(st.just("file"), st.sampled_from([b"", b"one", b"two"]), times),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"nowhere", b"b/a", b"d"]), times),
    st.tuples(st.sampled_from(["fifo", "socket"]), st.just(b""), times),
)


def _directories(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    entries = st.dictionaries(names, children, max_size=4)
    return st.tuples(st.just("directory"), entries, times)


trees = st.recursive(leaves, _directories, max_leaves=6)
roots = _directories(trees)
keeps = st.sampled_from(
    [PreservedAttributes(), PreservedAttributes(timestamps=True, mode=True), ALL]
)
existings = st.builds(
    OverwriteOptions, stays=st.booleans(), newer=st.booleans(), same=st.booleans(),
    force=st.booleans(), in_place=st.booleans(),
)  # fmt: skip


def build(path: bytes, node: Node) -> None:
    kind, value, time_ns = node
    if kind == "file":
        write_file(path, value)
    elif kind == "link":
        os.symlink(value, path)
    elif kind in ("fifo", "socket"):
        os.mknod(path, 0o644 | (stat.S_IFIFO if kind == "fifo" else stat.S_IFSOCK))
    else:
        os.mkdir(path)
        for name, child in value.items():
            build(os.path.join(path, name), child)
    os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


def state(path: bytes) -> list[tuple[bytes, int, int, int, int]]:
    found = []
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files, b"."):
            entry = os.path.join(folder, name)
            s = os.lstat(entry)
            found.append((entry, s.st_ino, s.st_mode, s.st_mtime_ns, s.st_ctime_ns))
    return sorted(found)


def verdict(
    source: bytes, target: bytes, report: bytes, dry: bool, options: dict[str, Any]
) -> dict[str, Any]:
    try:
        code = copy_here(
            [source], target, exact=True, jobs=1, transport="local", quiet=True, progress="never",
            dry=dry, json=os.fsdecode(report), **options,
        )  # fmt: skip
    except UsageError:
        code = 2
    if code == 2:
        return {"exit_code": code}
    result = document(report)
    assert result["exit_code"] == code
    return {name: result[name] for name in COUNTS}


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    source=roots, target=st.one_of(st.none(), trees, roots), keep=keeps, existing=existings,
    links=st.sampled_from(["none", "none", "all"]),
)  # fmt: skip
@example(
    source=("directory", {b"a": ("fifo", b"", OLD_NS)}, OLD_NS),
    target=("directory", {b"a": ("fifo", b"", OLD_NS)}, OLD_NS),
    keep=ALL, existing=OverwriteOptions(), links="none",
)  # fmt: skip
def test_dry_run_has_the_exit_code_and_counts_of_the_run(
    source: Node,
    target: Node,
    keep: PreservedAttributes,
    existing: OverwriteOptions,
    links: str,
    place: bytes,
) -> None:
    if not keep.timestamps:
        existing = OverwriteOptions(existing.stays, existing.newer, False, *_rest(existing))
    if existing.stays:
        existing = OverwriteOptions(True, False, False, False, existing.in_place)
    inner = tempfile.mkdtemp(dir=place)
    try:
        first, second, report = inner + b"/source", inner + b"/target", inner + b"/report"
        build(first, source)
        if target is not None:
            build(second, target)
        options: dict[str, Any] = {"keep": keep, "existing": existing, "links": links}
        before = state(inner)
        dry = verdict(first, second, report, True, options)
        if os.path.exists(report):
            os.unlink(report)
        assert [e for e in state(inner) if e[0] != inner + b"/."] == [
            e for e in before if e[0] != inner + b"/."
        ]
        assert dry == verdict(first, second, report, False, options)
    finally:
        shutil.rmtree(inner)


def _rest(existing: OverwriteOptions) -> tuple[bool, bool]:
    return existing.force, existing.in_place
