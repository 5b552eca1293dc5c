"""System calls that a kernel may lack: tests query them, and disable them.

``python -m tests.system_calls ENOSYS statx,openat2 COMMAND...`` runs a command for which these
calls fail with ENOSYS, as on an older kernel, or with EPERM, as in containers whose list of
permitted calls is older than the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

_NUMBERS = {
    "x86_64": {"copy_file_range": 326, "statx": 332},
    "aarch64": {"copy_file_range": 285, "statx": 291},
}
# The same on both.
_NEW = {
    "close_range": 436,
    "openat2": 437,
    "faccessat2": 439,
    "fchmodat2": 452,
    "listxattrat": 465,
}
CALLS = ("statx", "copy_file_range", *_NEW)
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ARCHITECTURE_AT, _NUMBER_AT = 4, 0
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def _number(call: str) -> int:
    return (_NEW | _NUMBERS[platform.machine()])[call]


def reason_not_to_refuse() -> str:
    """Return why calls cannot be refused on this machine; "" if they can."""
    if platform.machine() not in _NUMBERS or sys.maxsize < 1 << 32:
        return "the numbers of this machine's system calls are not known"
    with open("/proc/self/status", encoding="ascii") as lines:
        found = any(line.startswith("Seccomp:") for line in lines)
    return "" if found else "the kernel has no seccomp filters"


def is_missing(call: str) -> bool:
    """Return whether this kernel lacks a call or this container refuses it."""
    if platform.machine() not in _NUMBERS:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    zeros = (ctypes.c_long(0) for _ in range(5))
    libc.syscall(ctypes.c_long(_number(call)), ctypes.c_long(-1), *zeros)
    return ctypes.get_errno() in (errno.ENOSYS, errno.EPERM)


def refuse(calls: Sequence[str], code: int) -> None:
    """Make these calls fail with this error, in this process and its children. OSError."""
    numbers = [_number(call) for call in calls]
    # Calls of another architecture have other numbers; they are permitted.
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 0, len(numbers) + 1, _ARCHITECTURES[platform.machine()]),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | code),
    ]
    text = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(text, len(text))
    described = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if os.geteuid() != 0:
        libc.prctl(_SET_NO_NEW_PRIVILEGES, one, zero, zero, zero)
    if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), described, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    """Refuse calls, then execute the command."""
    code, calls, *command = sys.argv[1:]
    refuse(calls.split(","), getattr(errno, code))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
