"""A path, examined by a process of its own: a file system that hangs does not hang the report.

That process removes what it has made however it ends, but by SIGKILL; then this one does. When this
one ends before it, that one is stopped.
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
    """What the process tells, a line of JSON each: where it works, what it has found."""

    place: bytes = b""
    known: Facts = {}
    possible: Facts = {}
    trouble: str = ""


def examined(path: bytes, *, trials: bool, deadline_s: float) -> Facts:
    """What is known of a path, in so many seconds."""
    read_fd, write_fd = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(read_fd)
        _tell(parent, path, write_fd, trials=trials)
    os.close(write_fd)
    with io.FileIO(read_fd) as reader:
        data, in_time = _read(reader, time.monotonic() + deadline_s)
    # Of a last line that is not whole nothing is known.
    told = [msgspec.json.decode(line, type=Told) for line in data.split(b"\n")[:-1]]
    if not in_time:
        os.kill(child, signal.SIGTERM)
        told.append(Told(trouble=f"no answer within {deadline_s:g} s: the file system may hang"))
    else:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            for each in told:
                if each.place:
                    with suppress(OSError):
                        places.remove(each.place)
            name = signal.Signals(os.WTERMSIG(status)).name
            told.append(Told(trouble=f"the process that examined it was ended by {name}"))
    return _together(told, trials=trials)


def _together(told: list[Told], *, trials: bool) -> Facts:
    found: Facts = {}
    for each in told:
        found |= each.known | each.possible
    trouble = next((each.trouble for each in told if each.trouble), "")
    if trouble or not trials:
        found["trials"] = Fact(None, trouble or "--no-trials")
    return found


def _tell(parent: int, path: bytes, writer: int, *, trials: bool) -> NoReturn:
    """In the child: tell what there is to tell, and end."""

    def tell(told: Told) -> None:
        write_all(writer, msgspec.json.encode(told) + b"\n")

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
    """Once is enough: what is removed at the end shall be."""
    for each in _STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit


def _read(reader: io.FileIO, ends_s: float) -> tuple[bytes, bool]:
    """All until the other side closes, and whether it did so in time."""
    data = b""
    while (left_s := ends_s - time.monotonic()) > 0:
        if select.select([reader], [], [], left_s)[0]:
            some = reader.read(1 << 16)
            if not some:
                return data, True
            data += some
    return data, False
