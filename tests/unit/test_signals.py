"""Real signals: the first is pending and wakes the loop, a second SIGINT ends the process.

Harmless signals are sent to this process, all others to another process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pcircle.cli.inputs import open_input
from pcircle.core.errors import Interrupted
from pcircle.fs.sorting import pieces
from pcircle.runtime.signals import CODES, Signals
from tests.conftest import Run


class Bell:
    """A counter of wake-ups."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
)
def test_the_first_signal_is_pending_and_wakes(number: signal.Signals, code: int) -> None:
    before = [signal.getsignal(signal_number) for signal_number in CODES]
    with Signals(bell := Bell()) as signals:
        assert signals.pending is None
        assert signals.code is None
        signal.raise_signal(number)
        assert signals.pending is number
        assert signals.code == code
        assert bell.rung == 1
    assert [signal.getsignal(signal_number) for signal_number in CODES] == before


def test_later_signals_change_nothing() -> None:
    with Signals(bell := Bell()) as signals:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert signals.pending is signal.SIGTERM
        assert bell.rung == 3


def test_two_simultaneous_sigints_count_as_one() -> None:
    with Signals(Bell()) as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert signals.code == 130


def test_ignored_signals_stay_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals(Bell()) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.pending is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_handlers_are_restored_after_an_exception() -> None:
    before = [signal.getsignal(number) for number in CODES]
    with pytest.raises(KeyError), Signals(Bell()):
        raise KeyError
    assert [signal.getsignal(number) for number in CODES] == before


def test_a_later_second_sigint_ends_the_process(run: Run) -> None:
    program = (
        "import signal, time\n"
        "from pcircle.runtime.signals import Signals, _SAME_S\n"
        "with Signals(lambda: None):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    time.sleep(_SAME_S + 0.1)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "print('still here')\n"
    )
    done = run([sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (130, b"")


def test_a_signal_ends_a_wait() -> None:
    """The signal may arrive just before the wait, when Python no longer looks for signals."""
    program = (
        "from pcircle.runtime.signals import Signals\n"
        "from pcircle.transport._wake import Wakeup\n"
        "wakeup = Wakeup()\n"
        "with Signals(wakeup.set) as signals:\n"
        "    print('ready', flush=True)\n"
        "    wakeup.wait(None)\n"
        "    print(signals.code)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "143\n"
    assert process.returncode == 0


def test_a_signal_is_handled_while_a_pipe_is_read() -> None:
    """The signal may arrive at any time, also between the reads that fill one buffer."""
    for number in range(100):
        out, into = os.pipe()
        # Fewer bytes than requested, without the end of the file.
        writer = threading.Thread(target=_write_slowly, args=(into,))
        due = threading.Timer(number % 20 / 4000, os.kill, (os.getpid(), signal.SIGINT))
        with Signals(Bell()) as signals, signals.raised():
            writer.start()
            with pytest.raises(Interrupted):
                _read(out, due)
            writer.join()
        os.close(out)
        os.close(into)


def _read(out: int, due: threading.Timer) -> None:
    with open_input(f"/dev/fd/{out}") as stream:
        due.start()
        for _ in pieces(stream, b"\n"):
            pass


def _write_slowly(into: int) -> None:
    for _ in range(8):
        os.write(into, b"name\n" * 1000)
        time.sleep(0.0005)
