"""Every tool works where the kernel lacks new system calls, or a container refuses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import system_calls

pytestmark = pytest.mark.skipif(
    bool(system_calls.reason_not_to_refuse()),
    reason=system_calls.reason_not_to_refuse() or "calls can be refused",
)
_NEW = tuple(call for call in system_calls.CALLS if call not in ("statx", "copy_file_range"))
# The C module is not used without statx.
KERNELS = [
    pytest.param("ENOSYS", _NEW, id="Linux 4.18"),
    pytest.param("ENOSYS", system_calls.CALLS, id="Linux 3.10"),
    pytest.param("EPERM", (*_NEW, "copy_file_range"), id="container"),
]
MIDDLE_BYTES = 300_000  # the kernel copies it
OWN = os.geteuid(), os.getegid()
# Without statx the C module must not be required.
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PCIRCLE_REQUIRE_NATIVE"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with nested directories, files for each way of copying, and a link."""
    top = tmp_path / "tree"
    for directory in ("a/b", "a/c", "d"):
        (top / directory).mkdir(parents=True)
        for number in range(4):
            (top / directory / f"f{number}").write_bytes(b"x" * number)
    (top / "d" / "middle").write_bytes(os.urandom(MIDDLE_BYTES))
    (top / "d" / "large").write_bytes(os.urandom(20 * MIDDLE_BYTES))
    (top / "link").symlink_to("nowhere")
    return top


def contents(top: Path) -> dict[str, bytes | str | None]:
    """Return the contents of a tree."""
    return {
        str(path.relative_to(top)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in top.rglob("*")
    }


@pytest.mark.parametrize(("code", "calls"), KERNELS)
def test_every_tool_works(tree: Path, tmp_path: Path, code: str, calls: tuple[str, ...]) -> None:
    def run(tool: str, *arguments: str | Path) -> str:
        refusing = [sys.executable, "-m", "tests.system_calls", code, ",".join(calls)]
        done = subprocess.run(
            [*refusing, sys.executable, "-m", "pcircle", tool, "-j1", *map(str, arguments)],
            check=False,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done
        return done.stdout

    copy, mirror = tmp_path / "copy", tmp_path / "mirror"
    before = contents(tree)
    run("fcp", "-p", tree, copy)
    assert contents(copy) == before
    run("fmirror", "-a", tree, mirror)
    (tree / "a" / "new").write_bytes(b"new")
    (tree / "d" / "f1").unlink()
    run("fmirror", "-a", "--delete", tree, mirror)
    assert contents(mirror) == contents(tree)
    assert run("fdiff", "-c", tree, mirror) == ""
    run("fchmod", "-R", "u=rwX,go=", copy)
    modes = {path.lstat().st_mode & 0o777 for path in copy.rglob("*") if not path.is_symlink()}
    assert modes == {0o700, 0o600}
    run("fchown", "-R", "{}:{}".format(*OWN), copy)
    assert len(run("ffind", copy).splitlines()) == len(before) + 1
    assert run("fls", "-R", copy)
    assert run("fprof", copy)
    assert run("fsum", copy)
    run("ffind", copy, "-name", "f*", "-delete")
    assert sorted(contents(copy)) == ["a", "a/b", "a/c", "d", "d/large", "d/middle", "link"]
    run("frm", "-r", copy)
    assert not copy.exists()
