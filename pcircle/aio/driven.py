"""What is submitted to a scheduler with io_uring: single operations, and composite ones by steps.

There a composite operation holds no thread: its steps are requests of the ring, or jobs of the
threads where the ring can't do them, and their ends drive it on. Between its steps it runs on a
thread that all of them share and nothing else uses, so that a slow one delays no operation. As
many are begun at once as operations of their kind may be in flight; else thousands of copies
would open thousands of files.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from pcircle.aio.futures import Cancelled, Future, Runner
from pcircle.aio.operations import DATA, METADATA, Operation, not_an_operation
from pcircle.aio.uring import Request, Ring

if TYPE_CHECKING:
    from pcircle.aio.scheduler import Composite, Scheduler


class Driven:
    """The work of one scheduler, on a ring. `runner` is for what follows. Refused without one."""

    def __init__(self, scheduler: Scheduler, limit: int, runner: Runner) -> None:
        from pcircle.aio.scheduler import Continuations

        self.scheduler = scheduler
        self.ring = Ring(limit, scheduler.busy.remove)
        self.steps = Continuations(scheduler.busy, "aio-steps")
        self._runner = runner
        self._lock = threading.Lock()
        self._closing = False
        self._running = {METADATA: 0, DATA: 0}
        self._queues: dict[str, deque[_Driven]] = {METADATA: deque(), DATA: deque()}

    def takes(self, work: Operation[Any] | Composite[Any]) -> bool:
        """Whether it is for the ring, at least in part."""
        return not isinstance(work, Operation) or self.ring.knows(work)

    def submit(self, work: Operation[Any] | Composite[Any], kind: str) -> Future[Any]:
        """As `Scheduler.submit`."""
        if isinstance(work, Operation):
            self._check()
            request = _Single(self, work, kind)
            request.future = Future(self._runner, request.abort)
            self.scheduler.busy.add()
            self.scheduler.leaving(work)
            self.ring.put(request)
            return request.future
        driven = _Driven(self, work, kind)
        driven.future = Future(self._runner, driven.abort)
        with self._lock:
            self._check()
            self.scheduler.busy.add()
            begins = self._running[kind] < self.ring.limit
            if begins:
                self._running[kind] += 1
            else:
                self._queues[kind].append(driven)
        if begins:
            driven.begin()
        return driven.future

    def _check(self) -> None:
        if self._closing:
            raise RuntimeError("the scheduler is closed")

    def ended(self, kind: str) -> None:
        """A composite operation has come to its end: the next one."""
        with self._lock:
            queue = self._queues[kind]
            following = queue.popleft() if queue else None
            if following is None:
                self._running[kind] -= 1
            idle = self._closing and not any(self._running.values())
        if following is not None:
            following.begin()
        if idle:
            self._finish()
        self.scheduler.busy.remove()

    def drop_waiting(self) -> None:
        """Cancel what has not begun."""
        self.ring.drop_waiting()
        for queue in self._queues.values():
            while True:
                with self._lock:
                    if not queue:
                        break
                    driven = queue.popleft()
                driven.drop()
                self.scheduler.busy.remove()

    def close(self, until_s: float) -> bool:
        """End the threads when all is done; false if it is not in time, then they do so later."""
        with self._lock:
            self._closing = True
            idle = not any(self._running.values())
        if idle:
            self._finish()
        return self.ring.join(until_s) and self.steps.join(until_s)

    def _finish(self) -> None:
        self.ring.finish()
        self.steps.finish()


class _Single(Request):
    """An operation by itself."""

    __slots__ = ("_driver", "_kind", "future")

    future: Future[Any]

    def __init__(self, driver: Driven, operation: Operation[Any], kind: str) -> None:
        super().__init__(operation)
        self._driver = driver
        self._kind = kind

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def wanted(self) -> bool:
        return not self.future.done

    def abort(self) -> None:
        self._driver.ring.cancel(self)

    def drop(self) -> None:
        self.future.cancel()
        self._driver.ring.ended += 1

    def withdraw(self) -> bool:
        self.drop()
        return True

    def settle(self, value: Any, error: BaseException | None) -> None:
        scheduler = self._driver.scheduler
        if error is not None:
            scheduler.name_path(self.operation, error)
            self.future.settle(None, error)
        else:
            scheduler.opened(self.operation, value)
            if not self.future.settle(value):
                # It may take as long as the operation did: not here.
                undo = partial(scheduler.take_back, self.operation, value)
                scheduler.on_a_thread(self._kind, undo)
        self._driver.ring.ended += 1

    def elsewhere(self) -> None:
        scheduler = self._driver.scheduler
        scheduler.on_a_thread(self._kind, self._run)
        self._driver.ring.ended += 1

    def _run(self) -> None:
        self._driver.scheduler.run_here(self.operation, self.future)


class _Driven:
    """A composite operation on its way."""

    __slots__ = ("_driver", "_kind", "_request", "_steps", "_told", "future")

    future: Future[Any]

    def __init__(self, driver: Driven, steps: Composite[Any], kind: str) -> None:
        self._driver = driver
        self._kind = kind
        self._steps = steps
        self._request: _Step | None = None  # what the ring does for it now
        self._told = False

    def begin(self) -> None:
        self._driver.steps.run(self._begin)

    def drop(self) -> None:
        self.future.cancel()
        self._steps.close()

    def abort(self) -> None:
        """It was cancelled: so is its step, unless that tidies up."""
        request = self._request
        if request is not None and not request.kept:
            self._driver.ring.cancel(request)

    def resume(self, value: Any, error: BaseException | None) -> None:
        """A step has ended."""
        self._driver.steps.run(partial(self._advance, value, error))

    # ---- on the thread of steps ------------------------------------------------

    def _begin(self) -> None:
        if self.future.done:
            self._steps.close()
            self._driver.ended(self._kind)
        else:
            self._advance(None, None)

    def _advance(self, value: Any, error: BaseException | None) -> None:
        """To the next step, or to the end."""
        self._request = None
        future = self.future
        while True:
            self._told = self._told or isinstance(error, Cancelled)
            try:
                step = self._steps.send(value) if error is None else self._steps.throw(error)
            except StopIteration as end:
                future.settle(end.value)
                break
            except BaseException as failure:
                future.settle(None, failure)
                break
            if not isinstance(step, Operation):
                value, error = None, not_an_operation(step)
            elif not future.done or self._told or step.tidying:
                self._carry_out(step)
                return
            else:
                value, error = None, Cancelled()
        self._driver.ended(self._kind)

    def _carry_out(self, step: Operation[Any]) -> None:
        ring, scheduler = self._driver.ring, self._driver.scheduler
        scheduler.leaving(step)
        if not ring.knows(step):
            self.on_a_thread(step)
            return
        request = _Step(self, step, kept=self._told or step.tidying)
        self._request = request
        ring.put(request)
        if self.future.done and not request.kept:
            ring.cancel(request)  # whoever cancelled may not have seen it

    def on_a_thread(self, step: Operation[Any]) -> None:
        self._driver.scheduler.on_a_thread(step.kind, partial(self._run, step))

    def _run(self, step: Operation[Any]) -> None:
        value, error = None, None
        try:
            value = step()
        except BaseException as failure:
            error = failure
        self.came(step, value, error)

    def came(self, step: Operation[Any], value: Any, error: BaseException | None) -> None:
        """A step has ended, wherever it was done."""
        scheduler = self._driver.scheduler
        if error is None:
            scheduler.opened(step, value)
        else:
            scheduler.name_path(step, error)
        self.resume(value, error)


class _Step(Request):
    """A step of a composite operation; `kept` if it is done in one that was cancelled, too."""

    __slots__ = ("_driven", "kept")

    def __init__(self, driven: _Driven, operation: Operation[Any], kept: bool) -> None:
        super().__init__(operation)
        self._driven = driven
        self.kept = kept

    @property
    def kind(self) -> str:
        return self.operation.kind

    @property
    def wanted(self) -> bool:
        return self.kept or not self._driven.future.done

    def drop(self) -> None:
        self._driven.resume(None, Cancelled())

    def withdraw(self) -> bool:
        return False  # its operation has begun

    def settle(self, value: Any, error: BaseException | None) -> None:
        if error is not None and self.asked:
            error = Cancelled()
        self._driven.came(self.operation, value, error)

    def elsewhere(self) -> None:
        self._driven.on_a_thread(self.operation)
