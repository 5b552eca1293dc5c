"""The backend on io_uring: operations that the kernel overlaps itself, with one thread of ours.

One thread owns the ring. What is submitted goes into a list that it empties when it comes by, so
many operations cost one entry into the kernel; while there is nothing to do it sleeps on an
eventfd, which completions ring as well as submissions. (The waiting calls of the package
``liburing`` hold the interpreter lock.) As many are in flight as may be, of metadata and of data,
from the beginning: what waits costs no thread of Python, so there is nothing to search for.

What a request reads or writes is kept until the kernel has answered, cancelled or not. Cancelling
asks the kernel to give up; if that comes too late what was made is undone. An operation that
hangs stays in the table, and the ring with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import count
from typing import Any

from pcircle.aio.calls import WRONG, Call, Calls
from pcircle.aio.mounts import Mounts
from pcircle.aio.operations import DATA, METADATA, Operation

_MOST_IN_FLIGHT = 4096
_REGISTER, _REGISTER_WORKERS = 427, 19
_RESTART = 512  # in the kernel: a call that was interrupted shall begin anew
_AGAIN = (errno.EINTR, _RESTART)
_RETRY_S = 0.001
_OF_TWO_NAMES = (os.rename, os.link, os.symlink)


class Refused(OSError):
    """io_uring can't be used here; the text says why."""


@cache
def missing() -> str:
    """Why there is no io_uring here; empty if there is."""
    try:
        _set_up(_package(), 8).leave()
    except Refused as error:
        return str(error.strerror)
    return ""


def _package() -> Any:
    try:
        return import_module("liburing")
    except ImportError:
        raise Refused(
            errno.ENOSYS,
            "io_uring can't be used without the package liburing: pip install 'pcircle[uring]'",
        ) from None
    except (OSError, ValueError) as error:  # it reads the kernel's version, and loads a library
        raise Refused(errno.ENOSYS, f"io_uring can't be used: liburing: {error}") from None


def _set_up(package: Any, entries: int) -> _Entrance:
    try:
        return _Entrance(package, entries)
    except OSError as error:
        why = {
            errno.ENOSYS: "this kernel has none, or forbids it",
            errno.EPERM: "it is forbidden (kernel.io_uring_disabled, or a filter of system calls)",
        }.get(error.errno or 0, str(error.strerror))
        raise Refused(error.errno, f"io_uring can't be used: {why}") from None


class Request(ABC):
    """An operation that is to be done by the ring, and who wants to know."""

    __slots__ = ("asked", "call", "number", "operation")

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.call: Call | None = None
        self.number = 0  # in the ring, 0 if it isn't there
        self.asked = False  # to be cancelled

    @property
    @abstractmethod
    def kind(self) -> str:
        """METADATA or DATA."""

    @property
    @abstractmethod
    def wanted(self) -> bool:
        """Whether it shall be begun."""

    @abstractmethod
    def drop(self) -> None:
        """It was not begun, and never will be."""

    @abstractmethod
    def withdraw(self) -> bool:
        """Nobody goes on submitting: whether it is dropped."""

    @abstractmethod
    def settle(self, value: Any, error: BaseException | None) -> None:
        """It has come to an end."""

    @abstractmethod
    def elsewhere(self) -> None:
        """The threads must do it."""


class _Entrance:
    """The ring as the package gives it, and the eventfd that wakes its thread."""

    def __init__(self, package: Any, entries: int) -> None:
        self.package = package
        self.ring = package.Ring()
        self._answer = package.Cqe()
        self.bell = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            package.io_uring_queue_init(entries, self.ring, 0)
        except OSError:
            os.close(self.bell)
            raise
        package.io_uring_register_eventfd(self.ring, self.bell)

    def allow_workers(self, most: int) -> None:
        """The kernel's threads for what waits, of which it allows too few: four a processor."""
        numbers = (ctypes.c_uint32 * 2)(most, 0)
        library = ctypes.CDLL(None, use_errno=True)
        # Before Linux 5.15 this can't be set: then fewer operations overlap.
        library.syscall(_REGISTER, self.ring.ring_fd, _REGISTER_WORKERS, numbers, 2)

    def entry(self) -> Any:
        """A free entry of the submission queue. None while it is full."""
        return self.package.io_uring_get_sqe(self.ring)

    def submit(self) -> bool:
        """All entries that are filled; false if the kernel takes no more just now."""
        package, ring = self.package, self.ring
        while package.io_uring_sq_ready(ring):
            try:
                package.io_uring_submit(ring)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EBUSY, errno.EINTR):
                    raise
                return False
        return True

    def answers(self) -> int:
        """How many there are."""
        package, ring = self.package, self.ring
        if package.io_uring_cq_has_overflow(ring):
            package.io_uring_get_events(ring)
        ready: int = package.io_uring_cq_ready(ring)
        return ready

    def answer(self) -> tuple[int, int, int]:
        """The next one: its request's number, a count, an errno or 0."""
        package, ring, answers = self.package, self.ring, self._answer
        package.io_uring_peek_cqe(ring, answers)
        entry = answers[0]
        number, result, code = entry.user_data, 0, 0
        try:
            result = entry.res
        except OSError as error:
            code = error.errno or 0
        package.io_uring_cqe_seen(ring, entry)
        return number, result, code

    def leave(self) -> None:
        self.package.io_uring_queue_exit(self.ring)
        os.close(self.bell)


class Ring:
    """A ring with at most `limit` operations of each kind in flight, and its thread.

    `settled` is told, once in a while, how many requests have added themselves to `ended`.
    Refused where there can be none.
    """

    def __init__(self, limit: int, settled: Callable[[int], None]) -> None:
        package = _package()
        self.limit = limit = min(limit, _MOST_IN_FLIGHT)
        self._mounts = Mounts()
        try:
            self._calls = Calls(package, self._mounts)
            self._entrance = _set_up(package, 1 << (4 * limit - 1).bit_length())
        except BaseException:
            self._mounts.close()
            raise
        self._entrance.allow_workers(2 * limit)
        self._orders: deque[Callable[[], None] | Request] = deque()
        self._asleep = False
        self.ended = 0
        self._settled = settled
        self._finishing = False
        self._broken = False
        self._ended = False
        self._ending, self._handing = threading.Lock(), threading.RLock()
        self._stuck = False  # the kernel takes no more entries just now
        self._numbers = count(1)
        self._waiting: dict[str, deque[Request]] = {METADATA: deque(), DATA: deque()}
        self._places = {METADATA: limit, DATA: limit}
        self._requests: dict[int, Request] = {}
        self._lost: list[Request] = []
        self._turns: dict[object, deque[Request]] = {}
        self._thread = threading.Thread(target=self._work, name="aio-ring", daemon=True)
        self._thread.start()

    # ---- for other threads -----------------------------------------------------

    def knows(self, operation: Operation[Any]) -> bool:
        """Whether it may be done by the ring."""
        return self._calls.know(operation)

    def put(self, request: Request) -> None:
        """Have it done; takes constant time."""
        self._order(request)

    def cancel(self, request: Request) -> None:
        """Have the kernel give up an operation, if it is there; it is settled all the same."""
        self._order(lambda: self._give_up(request))

    def drop_waiting(self) -> None:
        """Drop what has not begun."""
        self._order(self._drop_waiting)

    def finish(self) -> None:
        """End the thread when it has nothing left to do."""
        self._order(self._finish)

    def join(self, until_s: float) -> bool:
        """Wait for its end; false if it has not come in time."""
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return not self._thread.is_alive()

    def _order(self, order: Callable[[], None] | Request) -> None:
        self._orders.append(order)
        if self._broken:
            self._hand_over()
        elif self._asleep:
            self._asleep = False
            with self._ending:
                if not self._ended:
                    os.eventfd_write(self._entrance.bell, 1)

    # ---- on the ring's thread --------------------------------------------------

    def _work(self) -> None:
        try:
            self._turn_over()
        except BaseException as error:
            self._break_down(error)
        with self._ending:  # a cancellation may come at any time
            self._ended = True
            self._entrance.leave()
        self._mounts.close()

    def _turn_over(self) -> None:
        entrance = self._entrance
        while True:
            self._take_orders()
            self._mounts.refresh()  # after whatever the files of the orders were opened on
            self._fill()
            self._stuck = not entrance.submit()
            answers = entrance.answers()
            for _ in range(answers):
                self._answer(*entrance.answer())
            self._report()
            if answers or self._orders:
                continue
            if self._finishing and not self._requests:
                return
            self._sleep()

    def _report(self) -> None:
        """One by one they would fight over the lock with who submits."""
        number, self.ended = self.ended, 0
        if number:
            self._settled(number)

    def _sleep(self) -> None:
        if self._stuck:
            time.sleep(_RETRY_S)
            return
        self._asleep = True
        if not self._orders:  # given before they could know that somebody must be woken
            os.eventfd_read(self._entrance.bell)
        self._asleep = False

    def _take_orders(self) -> None:
        for _ in range(len(self._orders)):
            order = self._orders.popleft()
            if isinstance(order, Request):
                self._waiting[order.kind].append(order)
            else:
                order()

    def _fill(self) -> None:
        """Let in what there are places for."""
        for kind, waiting in self._waiting.items():
            while waiting and self._places[kind] > 0:
                self._begin(waiting.popleft())

    def _begin(self, request: Request) -> None:
        if not request.wanted:
            request.drop()
            return
        try:
            call = self._calls.of(request.operation)
        except WRONG:
            request.elsewhere()
            return
        if call.turn is not None:
            if call.turn in self._turns:
                request.call = call
                self._turns[call.turn].append(request)
                return
            self._turns[call.turn] = deque()
        self._places[request.kind] -= 1
        self._tell(request, call)

    def _tell(self, request: Request, call: Call) -> None:
        """The kernel, of a request that has a place."""
        entry = self._entry()
        package = self._entrance.package
        request.call = call
        request.number = number = next(self._numbers)
        self._requests[number] = request
        try:
            call.prepare(entry, *call.arguments)
        except WRONG:
            package.io_uring_prep_nop(entry)
            entry.user_data = 0
            self._end(request)
            request.elsewhere()
            return
        entry.user_data = number
        entry.flags = package.IOSQE_ASYNC

    def _entry(self) -> Any:
        """A free entry: there is one for each place, and some are cancellations."""
        while (entry := self._entrance.entry()) is None:
            if not self._entrance.submit():
                time.sleep(_RETRY_S)
        return entry

    def _answer(self, number: int, result: int, code: int) -> None:
        request = self._requests.get(number)
        if request is None or request.call is None:
            return  # of a cancellation, or of nothing
        call, closes = request.call, request.operation.function is os.close
        value: Any = result
        if not code and call.finish is not None:
            value = call.finish(result)
        if code in _AGAIN and not request.asked and not closes:
            value = call
        if isinstance(value, Call):
            del self._requests[number]
            if not request.asked:
                self._tell(request, value)
                return
            request.call, code = value, errno.ECANCELED
        self._end(request)
        if not code or (closes and code in _AGAIN):
            request.settle(value if not code else None, None)
        elif code in (errno.EAGAIN, errno.EOPNOTSUPP) and not (call.begun or request.asked):
            # A file that is open with O_NONBLOCK; or what the C library does by other means.
            request.elsewhere()
        else:
            request.settle(None, _failure(request.operation, code))

    def _end(self, request: Request) -> None:
        """Free its place, and let in who has waited for its turn."""
        self._requests.pop(request.number, None)
        request.number = 0
        self._places[request.kind] += 1
        call, request.call = request.call, None
        assert call is not None
        call.release()
        if call.turn is not None:
            self._next_turn(call.turn)

    def _next_turn(self, turn: object) -> None:
        """Who has waited longest takes the place that has become free."""
        others = self._turns[turn]
        while others:
            other = others.popleft()
            call, other.call = other.call, None
            if other.wanted and call is not None:
                self._places[other.kind] -= 1
                self._tell(other, call)
                return
            other.drop()
        del self._turns[turn]

    def _give_up(self, request: Request) -> None:
        request.asked = True
        if request.number:
            entry = self._entry()
            self._entrance.package.io_uring_prep_cancel64(entry, request.number, 0)
            entry.user_data = 0

    def _drop_waiting(self) -> None:
        for waiting in [*self._waiting.values(), *self._turns.values()]:
            staying = [request for request in waiting if not request.withdraw()]
            waiting.clear()
            waiting.extend(staying)

    def _finish(self) -> None:
        self._finishing = True

    def _break_down(self, error: BaseException) -> None:
        """What nobody has foreseen: nobody shall wait for ever, and the threads take over."""
        self._broken = True
        self._lost = list(self._requests.values())  # the kernel may still write into their memory
        self._requests.clear()
        for request in self._lost:
            request.settle(None, error)
        for waiting in [*self._waiting.values(), *self._turns.values()]:
            self._orders.extend(waiting)
        self._hand_over()

    def _hand_over(self) -> None:
        with self._handing:
            while self._orders:
                order = self._orders.popleft()
                if isinstance(order, Request):
                    order.elsewhere()
            self._report()


def _failure(operation: Operation[Any], code: int) -> OSError:
    """As the call of Python would have raised it."""
    text = os.strerror(code)
    if operation.function in _OF_TWO_NAMES:
        source, target = operation.arguments[:2]
        return OSError(code, text, source, None, target)
    if operation.path is None:
        return OSError(code, text)
    return OSError(code, text, operation.path)
