"""The calls of the striped store behave like those of a local file system, errors included."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.striped_store import store as store_module
from examples.striped_store.checker import check
from examples.striped_store.client import Call, Calls
from examples.striped_store.store import StripedStore
from pcircle.collective import Answer, Member
from tests.collective.playing import Decisions

RANKS = 3
STRIPE_BYTES = 4
OLD = b"old" * 10


class Died(BaseException):
    """A rank dies."""


class Job:
    """Members in one process. Rank `victim` dies at its step number `step`, if it has one."""

    def __init__(self, place: Path, victim: int = -1, step: int = 0, *, collective: bool = True):
        self.place = place
        self.records = Decisions(lambda: False)
        self.collective = collective
        self.messages: deque[tuple[int, int, Any]] = deque()
        self.victim, self.steps_left, self.acting = victim, step, -1
        self.dead: set[int] = set()
        self.members = self._started()

    def _started(self) -> list[Member]:
        return [
            Member(
                rank,
                StripedStore(self.place, rank, RANKS),
                self.records,
                partial(self._send, rank),
                first=Random(str(self.place)).getrandbits(20),
            )
            for rank in range(RANKS)
        ]

    def _send(self, source: int, dest: int, message: object) -> None:
        self.step()
        self.messages.append((source, dest, message))

    def step(self, *_: object) -> None:
        """Count a step of the rank that acts; the victim may die at it."""
        if self.acting == self.victim and self.victim not in self.dead:
            self.steps_left -= 1
            if not self.steps_left:
                raise Died

    def _act(self, rank: int, act: Callable[[], Any]) -> Any:
        self.acting = rank
        try:
            return act()
        except Died:
            self.dead.add(rank)
            for other in {*range(RANKS)} - self.dead:
                self._act(other, partial(self.members[other].lost, rank, 0.0))
        finally:
            self.acting = -1

    def run(self, call: Call[Any]) -> Any:
        """Run one call on rank 0; return its result, or the number of its error."""
        answers: list[Answer] | None = None
        while True:
            try:
                step: Any = call.send(answers) if answers is not None else next(call)
            except StopIteration as stop:
                return stop.value
            except OSError as raised:
                return errno.errorcode[raised.errno or 0]
            answers = [] if isinstance(step, float) else [self._answer(one) for one in step]
            if 0 in self.dead:
                return "died"

    def _answer(self, request: Any) -> Any:
        me = self.members[0]
        self._act(0, lambda: me.request(request, 0.0, collective=self.collective))
        while self.messages:
            source, dest, message = self.messages.popleft()
            if dest not in self.dead:
                self._act(dest, partial(self.members[dest].received, source, message, 0.0))
        answers, me.answers[:] = list(me.answers), []
        return answers[-1] if answers else None

    def restart(self) -> None:
        """Start all ranks again."""
        self.victim, self.dead = -1, set()
        self.messages.clear()
        for member in self._started():
            assert member.recover() == []


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


class Local:
    """The same calls on a local directory."""

    def __init__(self, place: str) -> None:
        self.place = place

    def do(self, verb: str, path: str, *more: Any) -> Any:
        """Return the result, or the number of the error."""
        try:
            return self._do(verb, self.place + path, *more)
        except OSError as raised:
            return errno.errorcode[raised.errno or 0]

    def _do(self, verb: str, path: str, *more: Any) -> Any:
        match verb:
            case "create":
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, more[0]))
            case "mkdir":
                os.mkdir(path, more[0])
            case "rename":
                os.rename(path, self.place + more[0])
            case "write" | "read":
                fd = os.open(path, os.O_RDWR if verb == "write" else os.O_RDONLY)
                try:
                    return os.pwrite(fd, *more) if verb == "write" else os.pread(fd, *more)
                finally:
                    os.close(fd)
            case "stat":
                found = os.stat(path)
                return found.st_mode, 0 if stat.S_ISDIR(found.st_mode) else found.st_size
            case "listdir":
                return sorted(os.listdir(os.fsencode(path)))
            case _:
                getattr(os, verb)(path)
        return None


def _ours(job: Job, calls: Calls, verb: str, path: str, *more: Any) -> Any:
    if verb in ("write", "read"):
        file = job.run(calls.open(path, write=verb == "write"))
        return file if isinstance(file, str) else job.run(getattr(calls, verb)(file, *more))
    result = job.run(getattr(calls, verb)(path, *more))
    if verb == "stat" and not isinstance(result, str):
        return result.mode, result.size
    return None if verb in ("create", "mkdir") and not str(result).startswith("E") else result


def _calls(who: tuple[int, ...] | None = None, umask: int = 0) -> Calls:
    who = who or (os.geteuid(), os.getegid())
    return Calls(RANKS, who, umask=umask, stripe_bytes=STRIPE_BYTES, random=Random(1))


PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(
    lambda names: "/" + "/".join(names)
)
MODES = st.sampled_from([0o700, 0o755, 0o640, 0o777]).map(lambda mode: mode | 0o700)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["create", "mkdir"]), PATHS, MODES),
    st.tuples(st.sampled_from(["mkdir"]), PATHS, MODES),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("write"), PATHS, st.binary(min_size=1, max_size=40), st.integers(0, 60)),
    st.tuples(st.just("read"), PATHS, st.integers(0, 90), st.integers(0, 60)),
    st.tuples(st.sampled_from(["stat", "listdir", "unlink", "rmdir"]), PATHS),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(OPERATIONS, max_size=25), st.booleans())
def test_calls_have_the_results_of_a_local_file_system(
    operations: list[tuple[Any, ...]], collective: bool
) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.mkdir(place + "/local")
        local = Local(place + "/local")
        job = Job(Path(place, "store"), collective=collective)
        calls = _calls(umask=_umask())
        for operation in operations:
            assert _ours(job, calls, *operation) == local.do(*operation), operation
        assert check(job.place, RANKS)[1:] == ([], [], [], 0)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_stripes_are_on_all_ranks_in_turn(tmp_path: Path) -> None:
    job, calls = Job(tmp_path), _calls()
    file = job.run(calls.create("/file"))
    assert job.run(calls.write(file, b"0000111122223333", 0)) == 16
    first = int(file.id[1 : file.id.index(".")])
    for turn, content in enumerate([b"00003333", b"1111", b"2222"]):
        part = tmp_path / f"rank-{(first + turn) % RANKS}" / "data" / file.id
        assert part.read_bytes() == content


def test_permissions(tmp_path: Path) -> None:
    """Modes at creation follow the umask; a directory's mode decides who may do what in it."""
    job, root = Job(tmp_path), _calls((0, 0))
    alice, bob = _calls((1, 1), umask=0o027), _calls((2, 2, 1), umask=0o077)
    assert job.run(root.mkdir("/open", 0o777))
    assert job.run(alice.mkdir("/open/hers"))
    assert job.run(alice.create("/open/hers/file"))
    assert stat.S_IMODE(job.run(root.stat("/open/hers")).mode) == 0o750
    assert stat.S_IMODE(job.run(root.stat("/open/hers/file")).mode) == 0o640
    assert job.run(bob.listdir("/open/hers")) == [b"file"]  # bob is in her group
    assert job.run(bob.create("/open/hers/his")) == "EACCES"
    assert job.run(bob.unlink("/open/hers/file")) == "EACCES"
    assert job.run(bob.rename("/open/hers/file", "/open/file")) == "EACCES"
    assert job.run(bob.open("/open/hers/file")).writable is False
    assert job.run(bob.open("/open/hers/file", write=True)) == "EACCES"
    stranger = _calls((3, 3))
    for call in (stranger.stat("/open/hers/file"), stranger.listdir("/open/hers")):
        assert job.run(call) == "EACCES"
    assert job.run(root.create("/" + "x" * 256)) == "ENAMETOOLONG"
    assert job.run(root.create("/..")) == "EINVAL"


SETUP: list[tuple[Any, ...]] = [
    ("create", "/file", 0o600),
    ("write", "/file", OLD, 0),
    ("create", "/other", 0o600),
    ("mkdir", "/full", 0o700),
    ("mkdir", "/target", 0o700),
]
FAULTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Any], bool]]] = {
    "create": (("create", "/new", 0o600), ("stat", "/new"), lambda found: found != "ENOENT"),
    "mkdir": (("mkdir", "/new", 0o700), ("listdir", "/new"), lambda found: found == []),
    "write": (("write", "/file", b"x" * 40, 0), ("read", "/file", 50, 0), (b"x" * 40).__eq__),
    "unlink": (("unlink", "/file"), ("stat", "/file"), "ENOENT".__eq__),
    "rename": (("rename", "/file", "/target/f"), ("read", "/target/f", 9, 0), OLD[:9].__eq__),
    "replace": (("rename", "/file", "/other"), ("read", "/other", 50, 0), OLD.__eq__),
    "move": (("rename", "/full", "/target/full"), ("listdir", "/target"), [b"full"].__eq__),
}


@pytest.mark.parametrize("collective", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_may_die_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, collective: bool
) -> None:
    """A client or server dies before any message, write, rename or removal: no orphan is left."""
    operation, look, shows = FAULTS[fault]
    base, calls = Job(tmp_path / "base"), _calls()
    for setup in SETUP:
        assert _ours(base, calls, *setup) in (None, 30)
    jobs: list[Job] = []
    for name in ("_write", "_write_at", "_rename", "_unlink"):
        whole = getattr(store_module, name)

        def act(*arguments: Any, whole: Callable[..., Any] = whole) -> Any:
            if jobs:
                jobs[-1].step()
            return whole(*arguments)

        monkeypatch.setattr(store_module, name, act)
    steps = 0
    for victim in range(RANKS):
        step = 0
        while True:
            step += 1
            jobs.clear()
            place = tmp_path / f"{victim}-{step}"
            shutil.copytree(tmp_path / "base", place)
            job = Job(place, collective=collective)
            job.victim, job.steps_left = victim, step
            jobs.append(job)
            result = _ours(job, _calls(), *operation)
            died, survived = bool(job.dead), 0 not in job.dead
            job.restart()
            if survived and result in (None, 40):
                assert shows(_ours(Job(job.place), _calls(), *look)), (victim, step)
            assert check(job.place, RANKS)[1:] == ([], [], [], 0), (victim, step)
            if not died:
                break
        steps += step - 1
    assert steps > 10
