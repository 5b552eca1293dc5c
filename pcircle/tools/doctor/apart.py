"""Examines a path in a child process, so that a hanging file system does not block the report.

The child removes its directory however it ends. After SIGKILL, the parent removes it instead. If
the parent ends first, the child is terminated.
"""

from __future__ import annotations

import io
import os
import select
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import msgspec

from pcircle.core.writing import write_all
from pcircle.tools.doctor import places
from pcircle.tools.doctor.facts import Fact, Facts, reason
from pcircle.transport._exit import signal_on_parent_exit

_STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Told(msgspec.Struct, omit_defaults=True):
    """A message from the child, sent as a line of JSON: its directory, facts, or a problem."""

    place: bytes = b""
    known: Facts = {}
    possible: Facts = {}
    trouble: str = ""


def examined(path: bytes, *, trials: bool, deadline_s: float) -> Facts:
    """Return the facts about a path.

    If the child does not finish within `deadline_s`, the result has the facts received so far and
    the reason.
    """
    read_fd, write_fd = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(read_fd)
        _tell(parent, path, write_fd, trials=trials)
    os.close(write_fd)
    with io.FileIO(read_fd) as reader:
        data, in_time = _read(reader, time.monotonic() + deadline_s)
    # The last line may be incomplete, so it is not decoded.
    messages = [msgspec.json.decode(line, type=Told) for line in data.split(b"\n")[:-1]]
    if not in_time:
        os.kill(child, signal.SIGTERM)
        messages.append(
            Told(trouble=f"no answer within {deadline_s:g} s: the file system may hang")
        )
    else:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            for message in messages:
                if message.place:
                    with suppress(OSError):
                        places.remove(message.place)
            name = signal.Signals(os.WTERMSIG(status)).name
            messages.append(Told(trouble=f"the process that examined it was ended by {name}"))
    return _together(messages, trials=trials)


def _together(messages: list[Told], *, trials: bool) -> Facts:
    found: Facts = {}
    for message in messages:
        found |= message.known | message.possible
    trouble = next((message.trouble for message in messages if message.trouble), "")
    if trouble or not trials:
        found["trials"] = Fact(None, trouble or "--no-trials")
    return found


def _tell(parent: int, path: bytes, writer: int, *, trials: bool) -> NoReturn:
    """Examine the path in the child, send the facts to the parent, and exit."""

    def tell(message: Told) -> None:
        write_all(writer, msgspec.json.encode(message) + b"\n")

    for number in _STOP_SIGNALS:
        signal.signal(number, _stop)
    try:
        if not signal_on_parent_exit(parent, signal.SIGTERM):
            raise SystemExit
        tell(Told(known=places.known(path)))
        if trials:
            tell(Told(possible=places.possible(path, lambda place: tell(Told(place=place)))))
    except OSError as error:
        tell(Told(trouble=reason(error)))
    except Exception as error:
        tell(Told(trouble=f"{type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit after a signal, and ignore further signals so that the cleanup is not interrupted."""
    for ignored in _STOP_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise SystemExit


def _read(reader: io.FileIO, ends_s: float) -> tuple[bytes, bool]:
    """Return the data up to the end of file, and whether it was reached before `ends_s`."""
    data = b""
    while (left_s := ends_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            block = reader.read(1 << 16)
            if not block:
                return data, True
            data += block
    return data, False
