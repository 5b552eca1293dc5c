"""Each field of a copy's plan must match in a resumed run, or is listed as an exception.

A new field fails until it is in one of the two tables.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pcircle.core.units import timestamp
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.jobs.action_log import ActionOutput
from pcircle.ops.checkpoint.plan import JournalPlan
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.ops.copy.entry.settings import Striping
from pcircle.ops.copy.tree.items import DIRECTORY, CopyPlan, CopyRoot
from pcircle.ops.copy.tree.resume import options_of
from pcircle.walk.attributes import Attributes, Moment
from pcircle.walk.globs import Rule

PLAN = CopyPlan(
    tool="fcp",
    keep=PreservedAttributes(),
    large_bytes=32 << 20,
    token=b"1",
    umask=0,
    roots=(CopyRoot(b".", b"a", b"b", b"", DIRECTORY, b"a", b"b"),),
    chunk_bytes=None,
    directory=b"/",
)
# Fields that affect the result: another value, and the name of the field in the refusal.
COMPARED: dict[str, tuple[Any, str]] = {
    "keep": (PreservedAttributes(mode=True, acl=True), "attributes to preserve"),
    "existing": (OverwriteOptions(newer=True), "existing files"),
    "sparse": ("always", "--sparse"),
    "follow": (True, "-L"),
    "striping": (Striping(target=True, layout=b"layout"), "--stripe"),
    "listed": (b"digest", "the list of paths"),
    "wanted": (Attributes(min_bytes=1), "filters by attribute"),
    "rules": ((Rule(False, b"*.o"),), "filters"),
    "one_file_system": (True, "-x"),
    "verify": (True, "--verify"),
    "sign": ("xxh128", "--signature"),
    "umask": (0o077, "your umask"),
}
# The reason why the field may differ, or where else it is compared.
FREE: dict[str, tuple[Any, str]] = {
    "roots": ((), "compared by what they are copies of: `copies`"),
    "directory": (b"/tmp", "compared with the roots, whose paths begin there"),
    "large_bytes": (1, "that of the first run holds: `Kept.large_bytes`"),
    "token": (b"2", "each run has its own"),
    "since_ns": (1, "is the checkpoint's"),
    "journal": (JournalPlan(b"/c", b"", 2, 60.0, 0), "is the checkpoint"),
    "dry": (True, "has no checkpoint"),
    "tool": ("other", "what another one means differently is in other options"),
    "one_node": (False, "any number of processes may go on, on any nodes"),
    "strict": (True, "how operands are reached, not what they are"),
    "threads": (2, "how, not what"),
    "noatime": (True, "how, not what"),
    "polite": (0.25, "how fast"),
    "chunk_bytes": (4 << 20, "how, not what"),
    "reflink": ("never", "how, not what: the content is the same"),
    "bytes_per_s": (1.0, "how fast"),
    "operations_per_s": (1.0, "how fast"),
    "now_ns": (1, "that of the first run holds: `JournalPlan.now_ns`"),
    "acts": (ActionOutput(lines=True), "what is told"),
    "say_each": (True, "what is said"),
    "retries": (True, "what may be changed to write an entry, not what is copied"),
}
STRIPING_FREE = {"source", "target", "defaults"}  # are determined, not specified


def test_each_field_is_compared_or_has_a_reason() -> None:
    assert COMPARED.keys() & FREE.keys() == set()
    assert sorted(CopyPlan.__struct_fields__) == sorted([*COMPARED, *FREE])


@pytest.mark.parametrize("field", COMPARED)
def test_compared_fields(field: str) -> None:
    """A difference is reported under exactly one name."""
    value, said = COMPARED[field]
    assert _differing(msgspec.structs.replace(PLAN, **{field: value})) == {said}


@pytest.mark.parametrize("field", FREE)
def test_fields_that_may_differ(field: str) -> None:
    value, reason = FREE[field]
    assert getattr(PLAN, field) != value
    assert _differing(msgspec.structs.replace(PLAN, **{field: value})) == set(), reason


def test_the_umask_is_ignored_if_modes_are_preserved() -> None:
    with_modes = msgspec.structs.replace(PLAN, keep=PreservedAttributes(mode=True))
    assert options_of(with_modes) == options_of(msgspec.structs.replace(with_modes, umask=0o077))


def test_nothing_else_is_compared() -> None:
    assert set(options_of(PLAN)) == {said for _, said in COMPARED.values()}


def test_each_part_of_a_compared_field_counts() -> None:
    """The parts are attributes to preserve, overwrite options, and requested layouts."""
    parts: list[tuple[str, PreservedAttributes | OverwriteOptions | Attributes]] = []
    keep_arguments: list[Any] = [
        {name: True} for name in PreservedAttributes.__struct_fields__ if name != "given"
    ]
    parts += [("keep", PreservedAttributes(**arguments)) for arguments in keep_arguments]
    parts += [
        ("existing", OverwriteOptions(**{name: True}))
        for name in OverwriteOptions.__struct_fields__
    ]
    values: tuple[Any, ...] = (
        Moment(timestamp(1)),
        Moment(timestamp(1), ago=True),
        "ctime",
        1,
        1,
        (1,),
        (1,),
        "f",
        (b"x",),
        True,
    )
    names = Attributes.__struct_fields__
    parts += [("wanted", Attributes(**{n: v})) for n, v in zip(names, values, strict=True)]
    for field, value in parts:
        changed = msgspec.structs.replace(PLAN, **{field: value})
        assert _differing(changed) == {COMPARED[field][1]}, value
    wished = set(Striping.__struct_fields__) - STRIPING_FREE
    assert wished == {"keep", "layout"}
    keeps = msgspec.structs.replace(PLAN, striping=Striping(keep=True))
    assert _differing(keeps) == {"--stripe"}


def _differing(plan: CopyPlan) -> set[str]:
    before, after = options_of(PLAN), options_of(plan)
    return {name for name in before if before[name] != after[name]}
