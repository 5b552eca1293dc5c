"""`--syslog`: one line in the system log when a command ends, as logger(1) writes it.

A command may run several jobs, and a job may run in a child process (`--op-timeout`). So totals of
jobs are recorded in shared memory and logged when the command ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import time
from collections.abc import Callable

import msgspec

from pcircle.cli.output import MessageStream
from pcircle.cli.report import ACCOUNTS
from pcircle.core.encoding import show
from pcircle.core.errors import Defect, EntriesFailed, PcircleError, worst
from pcircle.core.writing import standard_error

SOCKET = "/dev/log"
_USER = 1 << 3  # the facility, as in syslog(3)
_WARNING, _INFO = 4, 6
# Independent of the locale.
_MONTHS = (*("Jan", "Feb", "Mar", "Apr", "May", "Jun"), *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"))
_MAX_BYTES = 2048  # which all receivers should accept, RFC 5424
_PATIENCE_S = 2.0  # a logger that hangs must not keep the command from ending


class Account(msgspec.Struct, frozen=True):
    """The totals of a job."""

    entries: int
    bytes: int
    failed: int


class JobTotals:
    """The totals of a command's jobs by name, in shared memory."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, name: str, entries: int, size: int, failed: int) -> None:
        """Record the totals of a job."""
        account = Account(entries, size, failed)
        text = msgspec.json.encode(self.accounts() | {name: account})
        self._shared[: len(text) + 1] = text + b"\0"

    def accounts(self) -> dict[str, Account]:
        """Return the recorded totals."""
        text = self._shared[:].partition(b"\0")[0]
        return msgspec.json.decode(text, type=dict[str, Account]) if text else {}


def logged(tool: str, command: str, run: Callable[[], int]) -> int:
    """Run a command, log its end and return its exit code, at least 1 if logging failed."""
    ledger = JobTotals()
    token = ACCOUNTS.set(ledger.note)
    began_s = time.monotonic()
    code = Defect.exit_code
    try:
        code = run()
    except PcircleError as error:
        code = error.exit_code
        raise
    finally:
        ACCOUNTS.reset(token)
        fields = _fields(code, ledger.accounts(), time.monotonic() - began_s)
        text = f"{fields} command: {command}"
        try:
            _send(tool, text, _WARNING if code else _INFO)
        except OSError as error:
            text = f"--syslog: cannot write to {SOCKET}: {error.strerror or error}"
            MessageStream(standard_error()).line(f"{tool}: {text}")
            code = worst((code, EntriesFailed.exit_code))
    return code


def _fields(code: int, accounts: dict[str, Account], elapsed_s: float) -> str:
    """Return the fields of the line."""
    fields: dict[str, object] = {"exit": code}
    for name, account in accounts.items():
        fields[name] = account.entries
        if name == "entries":
            fields["bytes"] = account.bytes
    if accounts:
        fields["failed"] = sum(account.failed for account in accounts.values())
    fields |= {"elapsed_s": f"{elapsed_s:.2f}", "uid": os.getuid()}
    try:
        fields["cwd"] = show(os.getcwdb())
    except OSError:  # it was removed
        fields["cwd"] = "?"
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _send(tool: str, text: str, priority: int) -> None:
    """Send a line to the system logger, by a datagram or by a stream."""
    now = time.localtime()
    stamp = f"{_MONTHS[now.tm_mon - 1]} {now.tm_mday:2} {time.strftime('%H:%M:%S', now)}"
    line = f"<{_USER | priority}>{stamp} {tool}[{os.getpid()}]: {text}".encode()
    if len(line) > _MAX_BYTES:
        line = line[: _MAX_BYTES - 3].decode(errors="ignore").encode() + b"..."
    for kind, end in ((socket.SOCK_DGRAM, b""), (socket.SOCK_STREAM, b"\0")):
        with socket.socket(socket.AF_UNIX, kind) as log:
            log.settimeout(_PATIENCE_S)
            try:
                log.connect(SOCKET)
            except OSError as error:
                if error.errno == errno.EPROTOTYPE and kind == socket.SOCK_DGRAM:
                    continue
                raise
            log.sendall(line + end)
            return
