"""Flags of `os.open` that several modules combine in the same way.

Links are not followed unless the flag's name contains FOLLOW. `OPEN_FILE` never waits for the other
end of a FIFO and never acquires a controlling terminal.
"""

from __future__ import annotations

import os

_O_PATH: int = getattr(os, "O_PATH", 0)  # Linux only
O_NOATIME: int = getattr(os, "O_NOATIME", 0)  # Linux only

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIRECTORY_FOLLOW = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_DIRECTORY_PATH = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a directory that need not be readable."""
OPEN_ENTRY_PATH = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for identifying an entry of any kind, including a link, without accessing its content."""
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FILE_READABLE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
