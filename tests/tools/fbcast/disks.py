"""The parts of a simulated broadcast outside the protocol: persistent disks, and the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pcircle.collective import Op, Refused
from pcircle.tools.fbcast.messages import BroadcastPlan, Ready, Way


class Crashed(OSError):
    """The error of a disk that was drawn to fail."""


class Disk:
    """One node's files, which outlive it. `failing` are numbers of writes, `slow` never ends."""

    def __init__(self, rank: int, needs: int) -> None:
        self.rank = rank
        self.shown: tuple[str, bytes] | None = None  # of which job
        self.temporary: dict[str, bytes] = {}
        self.intents: dict[Op, str] = {}
        self.fails_at: int | None = None
        self.refuses = False
        self.may_refuse_joining = False
        self._needs = needs
        self._plan: BroadcastPlan | None = None
        self._complete = ""
        self._finished: set[str] = set()
        self._writes = 0
        self._files = True

    def repair(self) -> None:
        """Repair all faults of the disk."""
        self.fails_at = None
        self.refuses = self.may_refuse_joining = False

    def join(self, plan: BroadcastPlan, recover: Callable[[], Iterable[object]]) -> Ready:
        """Finish the remaining work."""
        self._plan = plan
        self._complete = ""
        self._finished = set()
        if list(recover()):
            return Ready("", "in doubt")
        self._clear()
        if self.may_refuse_joining:
            return Ready("", "no such directory")
        self.temporary[plan.job] = b""
        return Ready("", completed=bool(self._finished), present=self.shown is not None)

    def pulse(self) -> int:
        """Signal progress, unless an operation never ends."""
        return 0

    def sign(self, names: Sequence[bytes]) -> bytes:
        """Return the signature of the visible data."""
        return b"" if self.shown is None else self.shown[1]

    def begin(self, files: bool) -> None:
        """Drop the data of earlier attempts."""
        self._files = files
        self._complete = ""
        self.temporary[self._job] = b""

    @property
    def _job(self) -> str:
        assert self._plan is not None
        return self._plan.job

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._writes += 1
        if self.fails_at == self._writes:
            raise Crashed("No space left on device")
        self.temporary[self._job] += data

    def complete(self) -> bytes:
        """Record that all data has arrived."""
        if not self._files:
            return self._needs.to_bytes(2, "little")
        self._complete = self._job
        return b""

    def drop(self) -> None:
        """Remove data that is not visible."""
        self._clear()

    def _clear(self) -> None:
        intended = set(self.intents.values())
        self.temporary = {job: data for job, data in self.temporary.items() if job in intended}

    def prepare(self, op: Op, coordinator: int, what: bytes) -> bytes:
        """Store an intent."""
        if self.refuses or self._complete != what.decode():
            raise Refused("not all of it is here")
        for other in [
            earlier_op for earlier_op, job in self.intents.items() if job == what.decode()
        ]:
            self.undo(other)
        self.intents[op] = what.decode()
        return b""

    def look(self, what: bytes) -> bytes:
        """Refuse, because this is not queried."""
        raise Refused("nothing to be asked")

    def commit(self, op: Op) -> None:
        """Make the data visible."""
        job = self.intents.pop(op, None)
        if job is not None:
            self.shown = job, self.temporary[job]
            self._finished.add(job)

    def undo(self, op: Op) -> None:
        """Drop the intent."""
        self.intents.pop(op, None)

    def in_doubt(self) -> list[Op]:
        """Return the remaining intents."""
        return list(self.intents)


class Pieces:
    """A source of several chunks. With `fails_at` one of them can't be read."""

    def __init__(self, pieces: list[bytes], way: Way, fails_at: int | None = None) -> None:
        self.needed: bytes | None = None
        self.data = b"".join(pieces)
        self._pieces = pieces
        self._way = way
        self._fails_at = fails_at
        self._left: list[bytes] = []

    def begin(self, nodes: int, files: bool, needed: bytes | None) -> Way:
        """Restart at the beginning."""
        self._left = self._pieces[::-1]
        self.needed = needed
        return self._way

    def read(self) -> tuple[bytes, bool]:
        """Return the next chunk."""
        if self._fails_at == len(self._pieces) - len(self._left):
            raise Crashed("it changed while it was read")
        return self._left.pop(), not self._left

    def sign(self) -> bytes:
        """Return the signature of all chunks."""
        return self.data
