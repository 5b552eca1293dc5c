"""Links that are followed on the way to a file in an option, and names that are not files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pcircle.fs import safe_open as trusted
from pcircle.fs.safe_open import PseudoDirectories, Untrusted, place_of, reading, writing

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")


def _open_and_close(path: Path) -> bytes:
    with open(reading(os.fsencode(path)), "rb") as stream:
        return stream.read()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a directory like /tmp, next to a directory of ours that contains a file."""
    tmp_path.chmod(0o755)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "file").write_text("precious")
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    return tmp_path


def test_own_links_are_followed(top: Path) -> None:
    """Links of all forms, at the end and in the middle, are followed as in the kernel."""
    (top / "sticky" / "own").symlink_to("../ours")
    (top / "absolute").symlink_to(top / "sticky" / "own")
    (top / "last").symlink_to("absolute/./file")
    (top / "slashed").symlink_to("ours//")
    (top / "dangling").symlink_to("ours/new")
    (top / "up").symlink_to("sticky/own/..")
    ways = ["last", "absolute/file", "slashed/file", "sticky/own//file", "up/ours/file", "up/last"]
    for way in (*ways, "sticky/../ours/../last", "./ours/./file"):
        assert _open_and_close(top / way) == b"precious", way
        with place_of(os.fsencode(top) + b"/" + way.encode()) as place:
            assert os.path.samefile(place.path, top / "ours" / "file"), way
    with closing(open(writing(os.fsencode(top / "dangling")), "wb")) as stream:
        stream.write(b"made")
    assert (top / "ours" / "new").read_text() == "made"
    for missing in ("ours/no/file", "ours/file/", "ours/file/x", "none/", "ours", "ours/"):
        with pytest.raises((FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            reading(os.fsencode(f"{top}/{missing}"))
    (top / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        _open_and_close(top / "loop")


@as_root
@pytest.mark.parametrize("way", ["{}", "{}/file", "{}/", "../sticky/{}/../ours/file"])
def test_another_user_s_link_is_not_followed(way: str, top: Path) -> None:
    """Such links are refused anywhere in the path and in a sticky, shared or private directory."""
    for name, owner, mode in (
        ("sticky", 0, 0o1777),
        ("shared", 0, 0o2775),
        ("foreign", OTHER, 0o755),
        ("his", OTHER, 0o1777),
    ):
        holder = top / name
        holder.mkdir(exist_ok=True)
        holder.chmod(mode)
        os.chown(holder, owner, -1)
        (holder / "link").symlink_to("../ours" if way != "{}" else "../ours/file")
        os.lchown(holder / "link", OTHER, OTHER)
        path = os.fsencode(holder) + b"/" + way.format("link").replace("sticky", name).encode()
        for attempt in (reading, writing, trusted.create, trusted.directory):
            with pytest.raises(Untrusted, match="another user could have created") as caught:
                attempt(path)
            assert caught.value.errno is None
        os.lchown(holder / "link", 0, 0)
        if not path.endswith(b"/"):
            os.close(reading(path + b"/file" * (way != "{}" and not way.endswith("file"))))
    assert (top / "ours" / "file").read_text() == "precious"


@as_root
def test_another_user_s_link_in_a_private_directory_is_trusted(top: Path) -> None:
    """Only a restore of a backup can have put it there, not the other user."""
    (top / "ours" / "link").symlink_to("file")
    os.lchown(top / "ours" / "link", OTHER, OTHER)
    assert _open_and_close(top / "ours" / "link") == b"precious"


@as_root
def test_files_of_another_user_in_a_sticky_directory_are_not_written(top: Path) -> None:
    planted = top / "sticky" / "planted"
    for kind in (stat.S_IFREG, stat.S_IFIFO):
        os.mknod(planted, kind | 0o666)
        os.chown(planted, OTHER, OTHER)
        with pytest.raises(Untrusted, match="belongs to another user"):
            writing(os.fsencode(planted))
        planted.unlink()
    os.link(top / "ours" / "file", planted)
    with pytest.raises(Untrusted, match="other hard links"):
        writing(os.fsencode(planted))
    planted.unlink()
    planted.write_text("own")
    os.close(writing(os.fsencode(planted)))
    assert planted.read_text() == "own"


@as_root
@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_swap_before_the_open_is_detected(
    kind: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor is checked, not the name, which is replaced just before the open."""
    path = top / "sticky" / "report"
    path.write_text("own")
    really = os.open

    def swapped(name: bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == b"report" and flags & os.O_ACCMODE == os.O_WRONLY and path.read_text() == "own":
            path.unlink()
            if kind == "link":
                path.symlink_to("../ours/file")
            else:
                path.write_text("his")
                os.chown(path, OTHER, OTHER)
        return really(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match=r"symbolic links|belongs to another"):
        writing(os.fsencode(path), os.O_TRUNC)
    assert kind == "link" or path.read_text() == "his"
    assert (top / "ours" / "file").read_text() == "precious"


def test_descriptors_and_harmless_devices_are_used(top: Path) -> None:
    with (top / "ours" / "file").open("r+b") as stream:
        number = stream.fileno()
        for name in (f"/dev/fd/{number}", f"/proc/self/fd/{number}"):
            assert _open_and_close(Path(name)) == b"precious"
            with place_of(name.encode()) as place:
                assert place.descriptor
    assert _open_and_close(Path("/dev/null")) == b""
    os.close(writing(b"/dev/full"))
    program = (
        "from pcircle.fs.safe_open import writing; open(writing(b'/dev/stdout'), 'w').write('here')"
    )
    piped = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    assert piped.stdout == b"here"


@pytest.mark.parametrize(
    "name", ["/proc/self/status", "/proc/version", "/proc/self/comm", "/proc/self/exe", "/sys/x"]
)
def test_names_of_the_kernel_are_not_files(name: str) -> None:
    """The names tried here can be neither created nor written to by mistake."""
    with pytest.raises(OSError, match=r"not accepted|Not a directory"):
        reading(name.encode())
    with pytest.raises(OSError, match=r"not accepted|Not a directory"):
        trusted.create(name.encode())


def test_directories_of_the_kernel(top: Path) -> None:
    pseudo = PseudoDirectories()
    for name in ("/proc", "/proc/self", "/dev", "/dev/pts"):
        if os.path.isdir(name):
            assert pseudo.has(os.stat(name)), name
    for name in (str(top), "/", "/dev/shm"):
        assert not os.path.isdir(name) or not pseudo.has(os.stat(name)), name
