"""Events around a copy while it runs, and unusual sources and destinations.

Some of these states last microseconds. They are forced by running fcp in a separate process with
one function of the copier wrapped: the changes of the file system are real, only their moment is
chosen.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.unit.unprivileged import run_unprivileged

MIB = 1 << 20
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of root")

# Runs fcp with `hook` called once, right after the copier's method NAME has returned.
WRAPPED = """
import sys
from pcircle.ops.copy.entry import files
def after(name, hook):
    method = getattr(files.Copier, name)
    calls = []
    def wrapped(self, *arguments):
        result = method(self, *arguments)
        calls.append(None)
        hook(len(calls))
        return result
    setattr(files.Copier, name, wrapped)
"""


def fcp(
    run: Run, *arguments: str | Path, cwd: Path, hook: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run fcp in `cwd`, in one process, with a hook's source executed before it."""
    program = f"{WRAPPED}{hook}\nfrom pcircle.tools.fcp.cli import main\nsys.exit(main())"
    words = [str(word) for word in arguments]
    return run([sys.executable, "-c", program, "-q", "-j1", *words], cwd=cwd)


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.rglob(".fcp-*"))


@pytest.mark.parametrize("size", [0, 5])
def test_large_file_that_shrinks_before_its_copy(run: Run, tmp_path: Path, size: int) -> None:
    (tmp_path / "source").mkdir()
    big = tmp_path / "source" / "big"
    big.write_bytes(bytes([7]) * (40 * MIB))
    hook = f"import os\nafter('files', lambda call: os.truncate({str(big)!r}, {size}))"
    done = fcp(run, "source", "copy", cwd=tmp_path, hook=hook)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy" / "big").read_bytes() == bytes([7]) * size
    assert not leftovers(tmp_path)


def test_large_file_that_vanishes_during_its_copy(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    big = tmp_path / "source" / "big"
    big.write_bytes(bytes([7]) * (40 * MIB))
    hook = f"import os\nafter('begin', lambda call: os.unlink({str(big)!r}))"
    done = fcp(run, "source", "copy", cwd=tmp_path, hook=hook)
    assert done.returncode == 1
    assert b"cannot open 'source/big': No such file" in done.stderr
    assert os.listdir(tmp_path / "copy") == []


def test_a_source_directory_that_is_swapped_is_not_mixed_with_the_other(
    run: Run, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(2000):
            (tmp_path / "source" / name / str(number)).write_text(name)
    hook = f"""
import os
from pcircle.fs.directories import Directories
def swap(call):
    if call == 2:
        os.chdir({str(tmp_path / "source")!r})
        os.rename('a', 'c'); os.rename('b', 'a'); os.rename('c', 'b')
after('files', swap)
lease = Directories.lease
def forgetful(self, *arguments, **options):
    for opened in list(self._open.keys()):
        if opened[1]:
            del self._open[opened]  # as if evicted, or on another rank
    return lease(self, *arguments, **options)
Directories.lease = forgetful
"""
    done = fcp(run, "source", "copy", cwd=tmp_path, hook=hook)
    assert done.returncode == 1
    for name in ("a", "b"):
        contents = {path.read_text() for path in (tmp_path / "copy" / name).iterdir()}
        assert len(contents) == 1, contents


@as_root
def test_no_copy_into_itself_through_a_mount(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a" / "sub").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    mount = tmp_path / "mount"
    mount.mkdir()
    subprocess.run(["mount", "--bind", tmp_path / "a" / "sub", mount], check=True)
    try:
        done = fcp(run, "a", "mount/new", cwd=tmp_path)
        assert done.returncode == 1
        assert b"'a/sub/new': it is the copy being made" in done.stderr
        names = [str(path.relative_to(mount)) for path in mount.rglob("*")]
        assert sorted(names) == ["new", "new/file", "new/sub"]
    finally:
        subprocess.run(["umount", mount], check=True)


@as_root
def test_a_link_to_a_device_is_not_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "link").symlink_to("device")
    done = fcp(run, "x", "link", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("chunk", ["4G", "1T"])
def test_an_interrupted_large_file_never_has_its_name(run: Run, tmp_path: Path, chunk: str) -> None:
    """The size of chunks does not matter."""
    (tmp_path / "big").write_bytes(bytes([1]) * (64 * MIB))
    hook = "import os, signal\nafter('begin', lambda call: os.kill(os.getpid(), signal.SIGKILL))"
    done = fcp(run, "--chunksize", chunk, "big", "copy", cwd=tmp_path, hook=hook)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "copy").exists()


def test_an_interrupt_during_startup(tmp_path: Path) -> None:
    """Ctrl-C in the first tenths of a second ends it silently, by the signal or its code."""
    (tmp_path / "x").write_text("x")
    # Until fcp's first statement Python prints a traceback of its own; this detects it.
    program = """
import os, signal, sys
real = signal.signal
def telling(*arguments):
    signal.signal = real
    real(*arguments)
    os.write(1, b"!")
signal.signal = telling
from pcircle.tools.fcp.__main__ import main
sys.exit(main())
"""
    command = [sys.executable, "-c", program, "-q", "-j3", "x", "copy"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for step in range(12):
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        time.sleep(0.01 * step)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (0, 130, -signal.SIGINT), said
        assert b"Traceback" not in said, said


@as_root
def test_from_below_a_directory_that_can_only_be_searched(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    (home / "public").mkdir(parents=True)
    (home / "public" / "file").write_text("x")
    (home / "file").write_text("y")
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path / "mine", 65534, 65534)
    home.chmod(0o711)
    program = """
from pcircle.tools.fcp.cli import main
assert main(["-q", "-j1", "../home/public", "d"]) == 0
assert main(["-q", "-j1", "../home/file", "f"]) == 0
assert main(["-q", "-j1", "../home", "refused"]) == 1
"""
    done = run_unprivileged(run, program, tmp_path / "mine")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "d" / "file").read_text() == "x"
    assert (tmp_path / "mine" / "f").read_text() == "y"
    assert not (tmp_path / "mine" / "refused").exists()


@as_root
def test_without_privilege_directories_that_forbid_themselves(run: Run, tmp_path: Path) -> None:
    """A directory that its own mode makes unsearchable still gets its times."""
    os.chown(tmp_path, 65534, 65534)
    program = """
import os
from pcircle.tools.fcp.cli import main
os.makedirs("s/e")
os.utime("s/e", ns=(1, 10**18 + 1))
os.chmod("s/e", 0o444)
assert main(["-q", "-j1", "-p", "s", "d"]) == 0
status = os.stat("d/e")
assert status.st_mtime_ns == 10**18 + 1 and status.st_mode & 0o777 == 0o444, status
"""
    done = run_unprivileged(run, program, tmp_path)
    assert done.returncode == 0, done.stderr


@as_root
def test_an_unprivileged_replacement_gets_no_set_id_bits(run: Run, tmp_path: Path) -> None:
    """Without the old owner or group, the bits would act for the wrong user."""
    tmp_path.chmod(0o777)
    (tmp_path / "x").write_text("new")
    for name, mode, group in (("setuid", 0o4755, 0), ("group", 0o660, 4)):
        (tmp_path / name).write_text("old")
        os.chown(tmp_path / name, 0 if name == "setuid" else 65534, group)
        (tmp_path / name).chmod(mode)
    program = """
from pcircle.tools.fcp.cli import main
assert main(["-q", "-j1", "x", "setuid"]) == 0
assert main(["-q", "-j1", "x", "group"]) == 0
"""
    done = run_unprivileged(run, program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "setuid").stat().st_mode & stat.S_ISUID
    assert not (tmp_path / "group").stat().st_mode & stat.S_IRWXG


def test_no_working_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        f"import os, sys; gone = {str(gone)!r}\n"
        "os.makedirs(gone, exist_ok=True); os.chdir(gone); os.rmdir(gone)\n"
        "from pcircle.tools.fcp.cli import main; sys.exit(main())"
    )
    absolute = [
        sys.executable,
        "-c",
        program,
        "-q",
        "-j1",
        str(tmp_path / "x"),
        str(tmp_path / "y"),
    ]
    assert run(absolute).returncode == 0
    assert (tmp_path / "y").read_text() == "x"
    relative = run([*absolute[:-1], "y"])
    assert relative.returncode == 1
    assert b"No such file" in relative.stderr


@pytest.mark.parametrize("where", ["/dev/full", None])
@pytest.mark.parametrize("words", [["missing", "y"], ["--no-such"]])
def test_a_refusal_without_a_reader(tmp_path: Path, where: str | None, words: list[str]) -> None:
    redirect = f"2>{where}" if where else "2>&-"
    command = [
        "sh",
        "-c",
        f'exec "$@" {redirect}',
        "sh",
        sys.executable,
        "-m",
        "pcircle.tools.fcp",
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 2


def test_files_with_nominal_sizes_are_copied_to_their_end(run: Run, tmp_path: Path) -> None:
    """Files in /sys report 4096 bytes and have fewer; those in /proc report 0 and have more."""
    sources = ["/sys/kernel/mm/transparent_hugepage/enabled", "/proc/version"]
    for source in sources:
        if not os.path.exists(source):
            pytest.skip(f"no {source} here")
        done = fcp(run, source, "copy", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "copy").read_bytes() == Path(source).read_bytes()


@as_root
def test_a_dry_run_predicts_unreadable_entries(run: Run, tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    program = """
import os
from pcircle.tools.fcp.cli import main
os.makedirs("s/d")
for name in ("s/a", "s/b"):
    open(name, "w").close()
os.chmod("s/b", 0)
os.chmod("s/d", 0)
assert main(["-q", "-j1", "--dry-run", "--json", "dry", "s", "t"]) == 1
assert main(["-q", "-j1", "--json", "real", "s", "t"]) == 1
import json
dry, real = json.load(open("dry")), json.load(open("real"))
assert dry["failed"] == real["failed"] == 2, (dry, real)
assert dry["entries"] == real["entries"] == 2
os.chmod("s/d", 0o700)
"""
    done = run_unprivileged(run, program, tmp_path)
    assert done.returncode == 0, done.stderr


def test_thousands_of_sources(run: Run, tmp_path: Path) -> None:
    """There are more names on the command line than permitted open files."""
    (tmp_path / "s").mkdir()
    (tmp_path / "t").mkdir()
    names = [f"s/{number}" for number in range(5000)]
    for name in names:
        (tmp_path / name).write_text(name)
    done = fcp(run, *names, "t", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    copied = {path.name: path.read_text() for path in (tmp_path / "t").iterdir()}
    assert copied == {os.path.basename(name): name for name in names}
