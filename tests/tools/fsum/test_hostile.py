"""fsum: forged manifests, outputs that are not files, closed streams.

A manifest with valid checksums is trusted only if its digests are consistent: that of every
directory covers its entries, up to the root.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import xxhash

from tests.conftest import ROOT
from tests.signed import signature_of
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import run_fsum, signed

_FILE = b"0" * 32
_EMPTY = xxhash.xxh3_128(b"dir\0" + bytes(8)).hexdigest().encode()


def _entry(name: bytes, kind: bytes = b"f", digest: bytes = _FILE, numbers: str = "1 1 1") -> bytes:
    return b"%b %b %b %b" % (kind, digest, numbers.encode(), name)


def _section(path: bytes, *entries: bytes) -> tuple[bytes, bytes]:
    """Return a section with a valid digest and checksum, and the digest."""
    from urllib.parse import unquote_to_bytes

    packed = b""
    for entry in entries:
        kind, digest, _, _, _, name = entry.split(b" ")
        raw = unquote_to_bytes(name)
        packed += len(raw).to_bytes(2, "big") + raw + kind + bytes.fromhex(digest.decode())
    whole = b"dir\0" + packed + len(entries).to_bytes(8, "big")
    digest = xxhash.xxh3_128(whole).hexdigest().encode()
    text = b"dir %b\n" % path + b"".join(entry + b"\n" for entry in entries)
    check = xxhash.xxh3_64(text).hexdigest().encode()
    return text + b". %d %b %b\n" % (len(entries), digest, check), digest


def _manifest(
    *sections: tuple[bytes, bytes],
    root: bytes = b"root d DIGEST 3 1 1 /nowhere\n",
    digest: bytes | None = None,
    head: bytes = b"pcmanifest 1 xxh128\n",
    end: bytes | None = None,
) -> bytes:
    """One whose last check is right; the root's digest is that of the first section."""
    digest = digest or (sections[0][1] if sections else _EMPTY)
    text = head + root.replace(b"DIGEST", digest) + b"".join(s[0] for s in sections)
    entries = 1 + sum(s[0].count(b"\n") - 2 for s in sections)
    text += b"end %d 3 " % entries if end is None else end
    return text + xxhash.xxh3_128(text).hexdigest().encode() + b"\n"


_INNER = _section(b"d", _entry(b"x"))
_TOP = _section(b".", _entry(b"a"), _entry(b"d", b"d", _INNER[1]))


def _single(*entries: bytes) -> bytes:
    return _manifest(_section(b".", *entries))


MADE_UP = {
    "no section at all": _manifest(),
    "a section is missing": _manifest(_TOP),
    "sections that nobody lists": _manifest(_TOP, _INNER, _section(b"e", _entry(b"y"))),
    "a section twice": _manifest(_TOP, _INNER, _INNER),
    "another directory's": _manifest(_TOP, _section(b"c", _entry(b"x"))),
    "another content than the directory's": _manifest(_TOP, _section(b"d", _entry(b"z"))),
    "another root": _manifest(_TOP, _INNER, digest=_FILE),
    "a path with a slash at its end": _manifest(_TOP, (_INNER[0].replace(b"d\n", b"d/\n", 1), b"")),
    "a name that leads upwards": _single(_entry(b"..")),
    "a path for a name": _single(_entry(b"../../etc/passwd")),
    "an empty name": _single(_entry(b"")),
    "a NUL in a name": _single(_entry(b"a%00")),
    "a name twice": _single(_entry(b"a"), _entry(b"a")),
    "names out of order": _single(_entry(b"b"), _entry(b"a")),
    "a kind that is none": _single(_entry(b"a", b"q")),
    "a size of thousands of digits": _single(_entry(b"a", numbers="9" * 5000 + " 1 1")),
    "a time of thousands of digits": _single(_entry(b"a", numbers="1 -" + "9" * 5000 + " 1")),
    "a digest that is too short": _single(_entry(b"a", digest=b"00")),
    "a root that is not absolute": _manifest(_TOP, _INNER, root=b"root d DIGEST 3 1 1 here\n"),
    "a NUL in the root": _manifest(_TOP, _INNER, root=b"root d DIGEST 3 1 1 /%00\n"),
    "a file with sections": _manifest(_TOP, _INNER, root=b"root f DIGEST 3 1 1 /nowhere\n"),
    "two roots": _manifest((b"root d " + _FILE + b" 3 1 1 /b\n", _TOP[1]), _TOP, _INNER),
    "a wrong number of entries": _manifest(_TOP, _INNER, end=b"end 7 3 "),
    "words for numbers": _manifest(_TOP, _INNER, end=b"end x y "),
    "more behind the end": _manifest(_TOP, _INNER) + b"x\n",
    "an unknown version": _manifest(_TOP, _INNER, head=b"pcmanifest 2 xxh128\n"),
    "an unknown algorithm": _manifest(_TOP, _INNER, head=b"pcmanifest 1 xxh999\n"),
    "escapes for a terminal": _manifest(_TOP, _INNER, head=b"pcmanifest 1 \x1b[31m\n"),
    "line ends of another system": _manifest(_TOP, _INNER).replace(b"\n", b"\r\n"),
    "a line without an end": b"pcmanifest 1 xxh128\n" + b"x" * (20 << 20),
}


@pytest.mark.parametrize("what", MADE_UP)
def test_a_forged_manifest_is_refused(what: str, tmp_path: Path) -> None:
    """Every operation refuses it, and nothing is written."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "m").write_bytes(MADE_UP[what])
    for arguments in (["--check", "m", "tree"], ["--update", "m", "tree"], ["--diff", "m", "m"]):
        finished = run_fsum(ONE, *arguments, cwd=os.fsencode(tmp_path))
        assert (finished.code, finished.out) == (2, b""), finished.said
        assert "line " in finished.said
        assert not set(finished.said) & set("\r\x1b")
        assert "Traceback" not in finished.said
    assert (tmp_path / "m").read_bytes() == MADE_UP[what]
    assert sorted(os.listdir(tmp_path)) == ["m", "tree"]


def test_a_manifest_built_the_same_way_is_accepted(tmp_path: Path) -> None:
    """This proves that each forged one is refused for its single error."""
    (tmp_path / "m").write_bytes(_manifest(_TOP, _INNER))
    assert run_fsum(ONE, "--diff", str(tmp_path / "m"), str(tmp_path / "m")).code == 0
    (tmp_path / "tree").mkdir()
    checked = run_fsum(ONE, "--check", str(tmp_path / "m"), str(tmp_path / "tree"))
    assert (checked.code, checked.out) == (3, b"missing  a\nmissing  d/\n"), checked.said


# ---- outputs ------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a small tree."""
    top = tmp_path / "tree"
    (top / "d").mkdir(parents=True)
    for name in ("a", "d/b"):
        (top / name).write_text(name)
    return top


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "link to a device"])
def test_only_regular_files_are_replaced(kind: str, tree: Path) -> None:
    """Even root must not replace a device: `-o /dev/null` must not destroy /dev/null."""
    import socket

    output = tree.parent / "output"
    if kind == "fifo":
        os.mkfifo(output)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(output))
    elif os.geteuid():
        pytest.skip("only root makes devices")
    else:
        device = output if kind == "device" else tree.parent / "device"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        if kind != "device":
            output.symlink_to(device)
    before = output.lstat(), output.stat()
    names = sorted(os.listdir(tree.parent))
    finished = run_fsum(ONE, "-o", str(output), str(tree))
    assert (finished.code, finished.out) == (2, b""), finished.said
    assert "exists and is not a regular file" in finished.said
    assert (output.lstat(), output.stat()) == before
    assert sorted(os.listdir(tree.parent)) == names


def test_the_target_of_a_link_is_replaced_and_keeps_its_mode(tree: Path) -> None:
    target, link = tree.parent / "target", tree.parent / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("target")
    refused = run_fsum(ONE, "-o", str(link), str(tree))
    assert refused.code == 2
    assert "--force" in refused.said
    assert target.read_text() == "old"
    assert run_fsum(ONE, "--force", "-o", str(link), str(tree)).code == 0
    assert link.is_symlink()
    assert target.read_bytes().startswith(b"pcmanifest")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    dangling = tree.parent / "dangling"
    dangling.symlink_to("made")
    assert run_fsum(ONE, "-o", str(dangling), str(tree)).code == 0
    assert (tree.parent / "made").read_bytes() == target.read_bytes()


def test_a_dash_does_not_name_a_manifest(tree: Path) -> None:
    finished = run_fsum(ONE, "-o", "-", str(tree), cwd=os.fsencode(tree.parent))
    assert finished.code == 2
    assert "./-" in finished.said
    assert os.listdir(tree.parent) == ["tree"]


@pytest.mark.parametrize(
    ("launcher", "where"),
    [
        (ONE, "d/manifest"),
        (Launcher(jobs=3), "manifest"),
        pytest.param(Launcher(ranks=2), "d/manifest", marks=pytest.mark.mpi),
    ],
    ids=str,
)
def test_a_manifest_in_its_own_tree_is_excluded(launcher: Launcher, where: str, tree: Path) -> None:
    """Its temporary files are excluded, but other files with such names are not."""
    (tree / "d" / "manifest-0").touch()
    (tree / ".fsum-keep").touch()
    before = signature_of(os.fsencode(tree))
    manifest = str(tree / where)
    for _ in range(2):
        assert signed(launcher, "--force", "-o", manifest, str(tree)) == [before]
        checked = run_fsum(launcher, "--check", manifest)
        assert (checked.code, checked.out) == (0, b""), checked.said
    assert signed(launcher, "--update", manifest) == [before]
    (tree / "d" / "b").write_text("c")
    assert run_fsum(launcher, "--check", manifest).out == b"changed  d/b\n"
    outside = str(tree.parent / "outside")
    assert signed(launcher, "-o", outside, str(tree)) == [signature_of(os.fsencode(tree))]
    names = {"d", "manifest", "manifest-0", ".fsum-keep", "a", "b"}
    assert {name for _, *parts in os.walk(tree) for part in parts for name in part} == names
    # A listed file that is not checked is not missing, either.
    shutil.copy(outside, manifest)
    assert run_fsum(launcher, "--check", manifest).code == 0


@pytest.mark.parametrize(
    "refused",
    [["--exclude-from", "missing"], ["--files-from", "missing"], ["--error-log", "missing/x"]],
)
def test_refusals_leave_nothing_behind(refused: list[str], tree: Path) -> None:
    finished = run_fsum(ONE, "-o", "m", *refused, str(tree), cwd=os.fsencode(tree.parent))
    assert finished.code == 2
    assert os.listdir(tree.parent) == ["tree"]


# ---- streams -----------------------------------------------------------------------------------


def _shell(script: str, tree: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script that uses $FSUM and $TREE."""
    environment = {
        **os.environ,
        "FSUM": f"{sys.executable} {ROOT / 'bin' / 'fsum'} -j 1",
        "TREE": str(tree),
    }
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "script",
    [
        '$FSUM "$TREE" >&-',
        '$FSUM --json - "$TREE" >&-',
        '$FSUM --json /dev/full "$TREE"',
        '$FSUM "$TREE" >/dev/full',
        '$FSUM --json - "$TREE" >/dev/full',
        '$FSUM --format=coreutils "$TREE" >/dev/full',
        'cd "$TREE/.."; $FSUM -o m tree >/dev/null && ${FSUM% -j 1} --diff m m --json /dev/full',
        "$FSUM --help >/dev/full",
        "$FSUM --version >/dev/full",
    ],
)
def test_an_unwritable_result_is_a_failure(script: str, tree: Path) -> None:
    ended = _shell(script, tree)
    assert ended.returncode == 1, ended.stderr
    assert b"cannot write" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_output_without_a_reader_does_no_harm(tree: Path) -> None:
    for script in ('$FSUM -v "$TREE" 2>&-', '$FSUM -v "$TREE" 2>/dev/full', '$FSUM "$TREE" <&-'):
        ended = _shell(script, tree)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.decode() == f"{signature_of(os.fsencode(tree))}  {tree}\n"


def test_unreadable_files_are_not_reported_as_unchanged(tree: Path) -> None:
    from tests.tools.fcp.running import without_rights

    manifest = str(tree.parent / "m")
    assert run_fsum(ONE, "-o", manifest, str(tree)).code == 0
    tree.chmod(0)
    prefix = without_rights("dac_override", "dac_read_search")
    checked = run_fsum(TWO, "--check", manifest, prefix=prefix)
    tree.chmod(0o755)
    assert checked.code == 1
    assert "fsum: contents " not in checked.said
    assert "readable contents of " in checked.said


@pytest.mark.parametrize(
    ("output", "path"),
    [("tree/a", "tree/a"), ("link", "tree/a"), ("tree/d/b", "tree"), ("tree/d/../a", "tree")],
)
def test_signed_data_is_not_replaced_by_a_manifest(output: str, path: str, tree: Path) -> None:
    """Writing a manifest in its place would lose data and omit it."""
    (tree.parent / "link").symlink_to("tree/a")
    finished = run_fsum(TWO, "-o", output, path, cwd=os.fsencode(tree.parent))
    assert (finished.code, finished.out) == (2, b""), finished.said
    assert "is part of the signed tree and would be replaced" in finished.said
    assert ((tree / "a").read_text(), (tree / "d" / "b").read_text()) == ("a", "d/b")
    assert sorted(os.listdir(tree.parent)) == ["link", "tree"]


def test_a_file_that_vanishes_before_the_job(tmp_path: Path) -> None:
    """It existed when the arguments were checked: a failure like any other."""
    (tmp_path / "file").write_text("text")
    program = (
        "import os, sys; from pcircle.tools.fsum import cli\n"
        "from pcircle.tools.fsum.visitor import SumTask\n"
        "seed = SumTask.seed\n"
        "def vanished(self):\n"
        "    os.unlink(sys.argv[-1]); return seed(self)\n"
        "SumTask.seed = vanished\n"
        "sys.exit(cli.main())\n"
    )
    line = [sys.executable, "-c", program, "-j", "1", str(tmp_path / "file")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert f"cannot open '{tmp_path}/file': No such file or directory" in done.stderr
