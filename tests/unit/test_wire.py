"""Messages as bytes: every type survives, and unsuitable values are refused.

The items are those of fcp and, for a library's task, plain tuples; names in them are any bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.circle.messages import (
    GATHER,
    PROGRESS,
    QUIESCE,
    STOP,
    Abort,
    BundleResults,
    FinalAccount,
    ItemResult,
    JoinRef,
    LifelineRequest,
    MessageCounts,
    MovedSlot,
    NoticeBatch,
    NoticeReply,
    Parcel,
    PinnedWork,
    ProgressSums,
    SafraToken,
    StealRefusal,
    StealRequest,
    TreeBroadcast,
    TreeReduction,
    WorkTransfer,
)
from pcircle.fs.scan import encoded
from pcircle.jobs.failures import Failure
from pcircle.ops.copy.tree import items
from pcircle.ops.copy.tree.items import CopyChunk, CopyResult, LargeFileItem, Remark, SingleRoots
from pcircle.runtime import RankReport, Task
from pcircle.runtime.task import wire_types
from pcircle.runtime.wire import Codec
from pcircle.walk.items import Batch, DirectoryIdentity, Tree, unpack

FAILURE = Failure(b"\xff\x00/\n", "open", 13, "Permission denied", 0, b"\xff\nname")
PLACE = DirectoryIdentity((2**40, 2**63), (1, 2), (1, 3))
ITEMS = (
    Tree(0, b"", 1.0),
    Tree(1, b"a/\xfe\xff", 0.25, b"x\0y", PLACE, 3),
    Batch(0, b"a", b"x\0\xf0", b"", 1e-9, PLACE),
    SingleRoots(3, 7, 0.5),
    LargeFileItem(0, b".", b"big", b"other", 0.5, PLACE),
    CopyChunk(
        b"big", b".fcp-1", (1, 2**64 - 1), (3, 4), 2**50, 4 << 20, 0.1, True, 0, b"a", 4 << 20
    ),
)
PARCELS = tuple(
    Parcel(item, None if number % 2 else JoinRef(number, 2**40))
    for number, item in enumerate(ITEMS)
)
MESSAGES = [
    StealRequest(),
    StealRequest(onward=True),
    StealRequest(thief=3),
    StealRefusal(),
    LifelineRequest(),
    WorkTransfer(3, True, (ITEMS[:4], ITEMS[4:])),
    WorkTransfer(0, False, (ITEMS,), 2**40),
    WorkTransfer(
        4,
        False,
        (ITEMS[:1],),
        0,
        (MovedSlot(0, 7, 2**50, 3, (CopyResult({3: items.PartialResult((1, 2), 4)}),)),),
    ),
    WorkTransfer(4, False, (ITEMS[:1],), 0, (MovedSlot(0, 7, 2**50, 3),)),
    PinnedWork(PARCELS),
    BundleResults(
        2**50,
        ((0, CopyResult({3: items.PartialResult((1, 2), 4)})), (7, CopyResult(cause=FAILURE))),
    ),
    ItemResult(7, CopyResult({3: items.PartialResult((1, 2), 4), -1: items.NOTHING})),
    ItemResult(2**50, CopyResult(cause=FAILURE)),
    NoticeBatch(((FAILURE, b"a line"), (Remark(b"a", "is odd"), b""))),
    NoticeReply(),
    SafraToken(3, -5, True),
    TreeBroadcast(STOP, 1, 143),
    TreeReduction(PROGRESS, 4, sums=ProgressSums((1, 2, 2**60), 0.5, 8, 1)),
    TreeReduction(QUIESCE, 4, counted=MessageCounts(2**40, 3)),
    TreeReduction(
        GATHER,
        1,
        account=FinalAccount((b"\xff",), CopyResult(cause=FAILURE), 4, ("why",), (3, 5), 2),
    ),
    TreeReduction(GATHER, 1, account=FinalAccount[Any]()),
    Abort(70, "ValueError: \u2026"),
]


@pytest.fixture(scope="module")
def codec() -> Codec:
    return Codec(items.Item, CopyResult, items.Notice)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_survives(codec: Codec, message: Any) -> None:
    assert codec.message(codec.encode(message)) == message


def test_notices_that_are_encoded_separately_are_decoded(codec: Codec) -> None:
    values = (FAILURE, b"a line"), (Remark(b"a", "is odd"), b"")
    encoded = tuple(msgspec.Raw(msgspec.msgpack.encode(value)) for value in values)
    assert codec.message(codec.encode(NoticeBatch(encoded))) == NoticeBatch(values)


def test_parcels_survive_in_a_segment(codec: Codec) -> None:
    assert codec.unpack(codec.pack(PARCELS)) == PARCELS
    assert codec.unpack(codec.pack(())) == ()


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xc1", b"\x91\xa1?", b"\x93\xa1d\x00"])
def test_invalid_messages_are_rejected(codec: Codec, payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.message(payload)


def test_items_of_another_type_are_rejected(codec: Codec) -> None:
    foreign = Codec(int, int, str)
    with pytest.raises(msgspec.ValidationError):
        codec.message(foreign.encode(WorkTransfer(0, True, ((5,),))))


names = st.binary(max_size=40)


@given(number=st.integers(0, 2**63), name=names, names=st.lists(names, max_size=5))
def test_a_library_task_has_plain_values(number: int, name: bytes, names: list[bytes]) -> None:
    codec = Codec(tuple[int, bytes], dict[bytes, int], bytes)
    parcel = Parcel((number, name), JoinRef(number % 8, number))
    for message in (
        WorkTransfer(number, True, ((parcel.item,),)),
        WorkTransfer(
            number, True, ((parcel.item,),), 0, (MovedSlot(0, 1, number, 2, ({name: number},)),)
        ),
        PinnedWork((parcel,)),
        BundleResults(number, ((1, {name: number}),)),
        ItemResult(number, {name: number}),
        NoticeBatch(tuple((name, b"") for name in names)),
    ):
        assert codec.message(codec.encode(message)) == message
    assert codec.unpack(codec.pack([parcel])) == (parcel,)


def test_names_are_encoded_as_scandir_returns_them() -> None:
    assert b"\0".join(encoded(["a", "\udcff", "\u00e9 "])) == b"a\0\xff\0\xc3\xa9 "
    assert unpack(b"a\0\xff\0\xc3\xa9 ") == [b"a", b"\xff", b"\xc3\xa9 "]
    assert unpack(b"\0".join(encoded([]))) == []


class Direct(Task[bytes, int]):
    pass


class Inherited(Direct):
    pass


class Untyped(Task):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("task", [Direct, Inherited])
def test_a_task_declares_its_types(task: type[Task[Any, Any]]) -> None:
    assert wire_types(task) == (bytes, int)


class Late(Task["Later", int]):  # type: ignore[name-defined]  # a class that is defined later
    pass


@pytest.mark.parametrize(("task", "types"), [(Untyped, (Any, Any)), (Late, (Any, int))])
def test_a_task_without_declared_types(task: type[Task[Any, Any]], types: tuple[Any, Any]) -> None:
    assert wire_types(task) == types


class Own:
    """A value that MessagePack can't represent."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


VALUES = [(1, (2, 3)), {4, 5}, {(6, 7): b"8"}, Own(9), [Own(10), (11,)], Path("/12"), None, 1 << 70]


@pytest.mark.parametrize("value", VALUES)
def test_untyped_values_survive(value: Any) -> None:
    """Tuples survive too, which MessagePack turns into lists."""
    codec = Codec(Any, Any, Any)
    parcels = (Parcel(value, JoinRef(1, 2)), Parcel([value], None))
    for message in (
        WorkTransfer(4, False, ((value, [value]), (value,))),
        WorkTransfer(
            4, False, ((value,),), 0, (MovedSlot(0, 1, 2, 3, (value,)), MovedSlot(0, 1, 2, 3))
        ),
        BundleResults(5, ((0, value), (1, [value]))),
        PinnedWork(parcels),
        ItemResult(3, value),
        TreeReduction(GATHER, 1, account=FinalAccount(value=value)),
    ):
        assert codec.message(codec.encode(message)) == message
    assert codec.unpack(codec.pack(parcels)) == parcels
    notice = msgspec.Raw(codec.encode_notice((value, b"line")))
    assert codec.message(codec.encode(NoticeBatch((notice,)))) == NoticeBatch(((value, b"line"),))


def test_types_that_only_python_knows_are_pickled() -> None:
    """The value is alone, inside other values, or of a type that msgspec rejects."""
    codec = Codec(tuple[Path, int], Own | Path, Own)
    parcel = Parcel((Path("/a"), 1), None)
    messages: list[Any] = [
        WorkTransfer(1, False, ((parcel.item,),)),
        WorkTransfer(1, False, ((parcel.item,),), 0, (MovedSlot(0, 1, 2, 3, (Own(4),)),)),
        PinnedWork((parcel,)),
        ItemResult(3, Own(4)),
        BundleResults(4, ((0, Own(4)),)),
        NoticeBatch(((Own(5), b""),)),
    ]
    for message in messages:
        assert codec.message(codec.encode(message)) == message


def test_a_report_of_a_rank_survives() -> None:
    report = RankReport(3, 1, (1, 2), 4, 5, 6, 7, 8, 9, 10, 11, 0.5, 2**40)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=RankReport) == report
