"""The descriptors of a process that ends while its threads still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ENDS = """
import errno, os, stat, sys, threading
from pcircle.transport._exit import close_descriptors
folder = sys.argv[1]
threading.Thread(target=threading.Event().wait, daemon=True).start()
file = os.open(folder + "/file", os.O_RDWR | os.O_CREAT)
there = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
reader, writer = os.pipe()
kept, said = os.pipe()
close_descriptors(said)
wrong = []
for call in (
    lambda: os.write(file, b"x"),
    lambda: os.read(file, 1),
    lambda: os.ftruncate(file, 0),
    lambda: os.read(reader, 1),
    lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=there),
    lambda: os.unlink("file", dir_fd=there),
):
    try:
        call()
        wrong.append("a call did something")
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ENOTDIR):
            wrong.append(str(error))
new = os.open(folder + "/another", os.O_RDWR | os.O_CREAT)
if new in (file, there, reader, writer, kept):
    wrong.append("a number is another file's")
if not stat.S_ISFIFO(os.fstat(said).st_mode):
    wrong.append("what was to be kept is gone")
os._exit(int(bool(wrong)))
"""


def test_descriptors_stay_reserved_and_pipe_readers_get_end_of_file(tmp_path: Path) -> None:
    """A file that one thread opens must not take the number of another thread's file."""
    with subprocess.Popen(
        [sys.executable, "-c", _ENDS, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert (out, said) == (b"", b"")
    assert (tmp_path / "file").read_bytes() == b""
    assert not (tmp_path / "new").exists()
    assert os.listdir(tmp_path)
