"""Monitors a task for errors that a real job would show only by chance.

An item that cannot be sent to another rank, or is changed after it was spawned, does no harm unless
it is stolen. Here every item is checked when it is made, and again when it begins.

`Violation` reports a broken rule.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from pcircle.circle import Message, Parcel, messages
from pcircle.runtime.task import I, R, Task
from pcircle.runtime.wire import Codec

T = TypeVar("T")


class Violation(AssertionError):
    """A run broke a rule; the message names the rule and the case that reproduces it.

    >>> from pcircle import testing
    >>> from pcircle.runtime import Task
    >>> class Words(Task[int, str]):
    ...     def seed(self): return range(9)
    ...     def process(self, item, context): return str(item)
    ...     def merge(self, a, b): return a + b
    >>> try:
    ...     testing.check(Words)
    ... except testing.Violation as found:
    ...     print("merge(a, b) is not merge(b, a)" in str(found))
    True
    """


MAX_STEPS = 1_000_000
_MAX_SHOWN = 120

_KINDS: dict[type, str] = {
    messages.StealRequest: "asks for work",
    messages.StealRefusal: "has no work to give",
    messages.LifelineRequest: "waits for work",
    messages.BundleResults: "sends results",
    messages.ItemResult: "sends a result",
    messages.NoticeBatch: "tells notices",
    messages.NoticeReply: "has heard the notices",
    messages.SafraToken: "passes the token",
    messages.TreeBroadcast: "a round goes down",
    messages.TreeReduction: "a round goes up",
    messages.Abort: "has all stop",
}


def short(value: object) -> str:
    """Return the repr of a value, truncated if it is long."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def described(message: Message) -> str:
    """Describe a message in a trace."""
    if isinstance(message, messages.WorkTransfer):
        return f"sends {_counted(sum(map(len, message.groups)))}"
    if isinstance(message, messages.PinnedWork):
        return f"posts {_counted(len(message.parcels))}"
    return _KINDS[type(message)]


def _counted(items: int) -> str:
    return f"{items} item" if items == 1 else f"{items} items"


class RuleViolationError(Exception):
    """The task broke a rule; the message describes it."""


class Watch:
    """Records the actions of all ranks in a run; `trace` receives them as lines of text."""

    def __init__(self, ranks: int, max_items: int, trace: Callable[[str], None] | None) -> None:
        self.items: list[int] = [0] * ranks
        self.error: BaseException | None = None  # the first that a method of the task raised
        self.found: RuleViolationError | None = None
        self.trace = trace
        self._max_items = max_items
        self._steps = 0
        self._total = 0

    def tell(self, now_s: float, rank: int, text: str) -> None:
        """Write one line of the trace."""
        if self.trace is not None:
            self.trace(f"{now_s:10.6f} rank {rank}: {text}")

    def fail(self, text: str, cause: BaseException | None = None) -> None:
        """Record that the task breaks a rule; only the first violation is reported."""
        if self.found is None:
            self.found = RuleViolationError(text)
            self.found.__cause__ = cause

    def done(self, rank: int) -> None:
        """Count an item that a rank has begun."""
        self.items[rank] += 1
        self._total += 1
        if self._total > self._max_items:
            self.fail(f"more than {self._max_items:,} items: does an item spawn itself?")

    def made(self, data: bytes, item: I) -> None:
        """Handle a spawned item and its encoding; a subclass may check them."""

    def returned(self, value: object) -> None:
        """Handle the result of an item; a subclass may check it."""

    def merging(self, task: Task[I, R], a: R, b: R) -> None:
        """Handle two results that are about to be merged; a subclass may check them."""

    def check(self, rank: int) -> None:
        """Raise the violation, if any; called after each step of a rank."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            self.fail(f"the job does not end: it has run for {MAX_STEPS:,} steps")
        if self.found is not None:
            raise self.found


class Inspector:
    """Checks the items and results of one rank."""

    def __init__(self, watch: Watch, codec: Codec) -> None:
        self._watch = watch
        self._codec = codec
        self._made: dict[int, tuple[object, bytes]] = {}  # items spawned here, by identity

    def made(self, items: Sequence[I]) -> None:
        """Check that spawned items survive being sent to another rank."""
        for item in items:
            data = self._sent("item", item, self._pack)
            if data:
                self._arrives("item", item, data, self._unpack)
                self._made[id(item)] = item, data
                self._watch.made(data, item)

    def begun(self, item: object) -> None:
        """Check that an item has not changed since it was spawned."""
        known = self._made.pop(id(item), None)
        if known is None or known[0] is not item:
            self.made([item])  # a seed
            return
        data = self._sent("item", item, self._pack)
        if data and data != known[1] and (before := self._unpack(known[1])) != item:
            self._watch.fail(
                f"an item was changed after it was spawned: it was {short(before)}, and is "
                f"{short(item)} when it begins. If it had been stolen before, it would not be"
            )

    def ended(self, value: object) -> None:
        """Check that a result survives being sent to another rank."""
        self._watch.returned(value)
        data = self._sent("result", value, self._pack_result)
        if data:
            self._arrives("result", value, data, self._unpack_result)

    # ---- encoding as in messages ------------------------------------------------

    def _pack(self, item: object) -> bytes:
        return self._codec.pack([Parcel(item, None)])

    def _unpack(self, data: bytes) -> object:
        return self._codec.unpack(data)[0].item

    def _pack_result(self, value: object) -> bytes:
        return self._codec.encode(messages.ItemResult(0, value))

    def _unpack_result(self, data: bytes) -> object:
        message = self._codec.message(data)
        return message.value if isinstance(message, messages.ItemResult) else None

    def _sent(self, what: str, value: T, pack: Callable[[T], bytes]) -> bytes:
        try:
            return pack(value)
        except Exception as error:
            text = f"{_an(what)} cannot be sent to another rank: {short(value)}: {error}"
            self._watch.fail(text, error)
            return b""

    def _arrives(
        self, what: str, value: object, data: bytes, unpack: Callable[[bytes], object]
    ) -> None:
        try:
            arrived = unpack(data)
        except msgspec.ValidationError as error:
            text = f"{_an(what)} is not of the type that the task says: {short(value)}: {error}"
            self._watch.fail(text, error)
            return
        if arrived != value and _is_comparable(value):
            self._watch.fail(
                f"{_an(what)} changes on its way to another rank: {short(value)} arrives as "
                f"{short(arrived)}. Say its type in class ...(Task[Item, Result]), or say none"
            )


def _an(what: str) -> str:
    return f"an {what}" if what == "item" else f"a {what}"


def _is_comparable(value: object) -> bool:
    """Return whether a copy of a value is equal to it."""
    try:
        return bool(pickle.loads(pickle.dumps(value)) == value)
    except Exception:
        return False
