"""Files that options name, and DST, are never opened through another user's link.

The tests run as root, the target of planted links, each in a directory of its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from pcircle.cli.json_output import check
from pcircle.core.errors import UsageError
from tests.programs import needs_mount_namespace
from tests.tools.fcp.running import FCP, ONE, TWO, Finished, Launcher, Run, run_fcp

OTHER = 65534
FSUM, FPROF, FBENCH = ("pcircle.tools.fsum",), ("pcircle.tools.fprof",), ("pcircle.tools.fbench",)
PRECIOUS = "precious\n"
Case = tuple[tuple[str, ...], str, tuple[str, ...]]
# Options that write or read files: each tool with the option; TREE and NEW stand for paths.
WRITTEN: list[Case] = [
    (
        FCP,
        "--json",
        (
            "TREE",
            "NEW",
        ),
    ),
    (
        FCP,
        "--error-log",
        (
            "TREE",
            "NEW",
        ),
    ),
    (FSUM, "--json", ("TREE",)),
    (FSUM, "--error-log", ("TREE",)),
    (FSUM, "-o", ("TREE",)),
    (FPROF, "--json", ("TREE",)),
    (FPROF, "--save", ("TREE",)),
    (FPROF, "--html", ("TREE",)),
    (FPROF, "--error-log", ("TREE",)),
    (
        FBENCH,
        "--json",
        (
            "--case",
            "metadata",
            "--files",
            "1",
            "NEW",
        ),
    ),
]
READ: list[Case] = [
    (
        FCP,
        "--files-from",
        (
            "-T",
            "TREE",
            "NEW",
        ),
    ),
    (
        FCP,
        "--exclude-from",
        (
            "TREE",
            "NEW",
        ),
    ),
    (
        FCP,
        "--retry-from",
        (
            "TREE",
            "NEW",
        ),
    ),
    (FSUM, "--files-from", ("TREE",)),
    (FSUM, "--include-from", ("TREE",)),
    (FSUM, "--check", ("TREE",)),
    (FPROF, "--files-from", ("TREE",)),
    (FPROF, "--merge", ()),
]
DIRECTORIES: list[Case] = [
    (
        FCP,
        "--checkpoint-dir",
        (
            "TREE",
            "NEW",
        ),
    ),
    (FPROF, "--csv", ("TREE",)),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "precious").write_text("in the tree")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "file").write_text(PRECIOUS)
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    return tmp_path


def _plant(path: Path, target: str) -> str:
    path.symlink_to(target)
    os.lchown(path, OTHER, OTHER)
    return str(path)


def _run(program: tuple[str, ...], *arguments: str, launcher: Launcher = ONE) -> Finished:
    with Run(None if "--merge" in arguments else launcher, *arguments, program=program) as run:
        return run.finish()


def _arguments(top: Path, option: str, named: str, *words: str) -> list[str]:
    paths = {"TREE": str(top / "tree"), "NEW": str(top / "new")}
    return [option, named, *(paths.get(word, word) for word in words)]


@as_root
@pytest.mark.parametrize("case", [*WRITTEN, *READ], ids=lambda case: case[0][0][8:] + case[1])
def test_planted_links_are_refused(case: Case, top: Path) -> None:
    """Links at the end of the path or in its middle are refused before anything else is done."""
    program, option, words = case
    (top / "ours" / "new").touch()
    link = _plant(top / "sticky" / "last", "../ours/file")
    way = _plant(top / "sticky" / "way", "../ours")
    if program is FBENCH:
        (top / "new").mkdir()
    before = sorted(os.listdir(top / "ours"))
    for named in (link, f"{way}/file"):
        finished = _run(program, *_arguments(top, option, named, *words))
        assert finished.code == 2, finished
        assert "is a symbolic link that another user could have created" in finished.said
    assert (top / "ours" / "file").read_text() == PRECIOUS
    assert sorted(os.listdir(top / "ours")) == before
    assert not (top / "new").exists() or not os.listdir(top / "new")


@as_root
@pytest.mark.parametrize("case", DIRECTORIES, ids=lambda case: case[1])
def test_planted_links_to_directories_are_refused(case: Case, top: Path) -> None:
    program, option, words = case
    link = _plant(top / "sticky" / "last", "../ours")
    for named in (link, f"{link}/deeper"):
        finished = _run(program, *_arguments(top, option, named, *words))
        assert finished.code == 2, finished
        assert "is a symbolic link that another user could have created" in finished.said
    assert os.listdir(top / "ours") == ["file"]


@as_root
def test_planted_files_are_not_written(top: Path) -> None:
    """Opening a FIFO would block, and the owner of a planted file could read the output."""
    planted = top / "sticky" / "planted"
    for kind in (stat.S_IFREG, stat.S_IFIFO):
        os.mknod(planted, kind | 0o666)
        os.chown(planted, OTHER, OTHER)
        for program, option, words in WRITTEN[:5]:
            finished = _run(program, *_arguments(top, option, str(planted), *words))
            assert finished.code == 2, finished
            assert not (top / "new").exists()
        planted.unlink()


def test_own_links_and_descriptors_work(top: Path) -> None:
    """Links in the user's own directory, own links in a shared one, and shell redirections work."""
    (top / "sticky" / "own").symlink_to("../ours")
    (top / "ours" / "list").write_text("precious\n")
    listed = str(top / "sticky" / "own" / "list")
    report, log = top / "sticky" / "own" / "report", top / "sticky" / "own" / "log"
    options = ["--files-from", listed, "--json", str(report), "--error-log", str(log)]
    finished = _run(FCP, *options, str(top / "tree"), str(top / "new"))
    assert finished.code == 0, finished.said
    assert (top / "new" / "precious").read_text() == "in the tree"
    assert report.is_file()
    assert log.is_file()
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed: no process substitution")
    script = (
        '"$@" --files-from <(echo precious) --error-log >(cat >&2) --json >(grep -c schema >&2)'
    )
    with Run(
        ONE, str(top / "tree"), str(top / "again"), prefix=(bash, "-c", script, "bash")
    ) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert "1\n" in finished.said
    assert (top / "again" / "precious").read_text() == "in the tree"


# ---- DST ---------------------------------------------------------------------------------------


@as_root
def test_a_planted_link_as_DST_is_refused(top: Path) -> None:
    directory = _plant(top / "sticky" / "directory", "../ours")
    file = _plant(top / "sticky" / "file", "../ours/file")
    tree, one = str(top / "tree"), str(top / "tree" / "precious")
    for arguments in (
        [tree, directory],
        [tree, f"{directory}/new"],
        ["-T", tree, directory],
        ["-t", directory, one, tree],
        [one, file],
        [one, f"{directory}/file"],
    ):
        finished = run_fcp(TWO, *arguments)
        assert finished.code == 2, finished
        assert "refusing to write" in finished.said
    assert (top / "ours" / "file").read_text() == PRECIOUS
    assert os.listdir(top / "ours") == ["file"]
    assert os.path.islink(file)


def test_a_link_into_proc_as_DST_is_refused(top: Path) -> None:
    """A DST of /dev/stdout must not be replaced by a file: as root that would break the machine."""
    into = top / "into"
    into.mkdir()
    (into / "precious").symlink_to("/proc/self/fd/1")
    (top / "fds").symlink_to("/proc/self/fd")
    one = str(top / "tree" / "precious")
    log = top / "log"
    to_file = (
        "sh",
        "-c",
        f'"$@" >{shlex.quote(str(top))}/out',
        "sh",
    )  # because a pipe is never replaced
    for arguments in (
        [one, str(into / "precious")],
        [one, str(into)],
        ["-t", str(into), one],
        ["-T", one, str(into / "precious")],
        ["--inplace", one, str(into / "precious")],
        ["--retry-from", str(log), one, str(into)],
        [one, str(top / "fds" / "1")],
        ["-t", str(top / "fds"), one],
        [str(top / "tree"), str(top / "fds")],
        [one, "/proc/self/fd/1"],
    ):
        log.touch()
        finished = run_fcp(TWO, *arguments, prefix=to_file)
        assert finished.code == 2, finished
        assert "not accepted" in finished.said, arguments
        assert (top / "out").read_bytes() == b""
    assert os.readlink(into / "precious") == "/proc/self/fd/1"


@needs_mount_namespace
def test_names_in_dev_and_proc_are_left_alone(top: Path) -> None:
    """DST may be in /dev or /proc, here in a namespace whose /dev is a private tmpfs."""
    root, tree = top / "root", top / "tree"
    for name in ("dev", "proc", "fine"):
        (root / "tree" / name).mkdir(parents=True)
        (tree / name).mkdir()
        (tree / name / "stdout").write_text("not this")
    script = f"""
        mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 || exit 99
        ln -s /proc/self/fd/1 /dev/stdout && mount --bind /dev {root}/tree/dev || exit 99
        mount -t proc none {root}/tree/proc || exit 99
        "$@" {tree}/fine/stdout /dev/stdout >{top}/out; echo $?
        "$@" {tree}/fine/stdout /dev/new; echo $?
        "$@" -t /dev {tree}/fine/stdout; echo $?
        "$@" --json {top}/report {tree} {root}; echo $?
        readlink /dev/stdout; ls /dev
    """
    prefix = ("unshare", "-m", "sh", "-c", script, "sh")
    with Run(ONE, "-q", prefix=prefix) as run:
        finished = run.finish()
    if finished.code == 99:
        pytest.skip(f"nothing can be mounted here: {finished.said}")
    assert finished.out.decode().split() == [
        *("2", "2", "2", "1"),
        *("/proc/self/fd/1", "null", "stdout"),
    ], finished.said
    assert (root / "tree" / "fine" / "stdout").read_text() == "not this"
    assert finished.said.count("not accepted") == 5


@as_root
def test_an_unreplaceable_file_is_refused_before_any_work() -> None:
    """In a sticky directory only the owner of a file or of the directory may rename over it."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        report = Path(name) / "report"
        report.touch()
        report.chmod(0o666)
        os.seteuid(OTHER)
        try:
            check(str(Path(name) / "new"))
            with pytest.raises(UsageError, match="another user and is in a sticky directory"):
                check(str(report))
        finally:
            os.seteuid(0)
        check(str(report))
