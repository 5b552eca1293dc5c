"""Manifests: identical for any number of ranks, and their uses.

--check and --diff name each change of a tree, and nothing else, for every number of ranks; entries
that cannot have changed are not read again; a damaged manifest is not trusted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.signed import signature_of
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, without_rights

from .running import every_launcher, run_fsum, some_launchers

ODD = "odd \n%41"


def _build(top: Path) -> Path:
    """Build 2,500 files in 40 directories, some of them full; links, a FIFO, odd names."""
    rng = Random(1)
    top.mkdir()
    places = [top]
    for number in range(39):
        place = rng.choice(places) / f"d{number}"
        place.mkdir()
        places.append(place)
    for number in range(2500):
        place = places[number % 3] if number % 2 else rng.choice(places)
        (place / f"f{number}").write_bytes(b"%d" % number * rng.randrange(40))
    (top / "a").mkdir()
    (top / "a-b").write_text("sorts between a directory and what is in it")
    (top / "a" / "x").write_text("x")
    Path(os.fsdecode(os.fsencode(top) + b"/odd \n%41\xff")).write_text("odd")
    (top / "a" / ODD).mkdir()
    (top / "link").symlink_to("a")
    os.mkfifo(top / "pipe")
    (top / "large").write_bytes(rng.randbytes(41 << 20))
    return top


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Create a tree that is never changed, and its manifest."""
    top = _build(tmp_path_factory.mktemp("manifests") / "tree")
    manifest = top.parent / "manifest"
    assert run_fsum(ONE, "-o", str(manifest), str(top)).code == 0
    return top, manifest


@pytest.fixture
def copied(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Create a copy that may be changed, and its manifest."""
    top = tmp_path / "tree"
    shutil.copytree(made[0], top, symlinks=True, ignore=lambda *_: ["pipe"])
    manifest = tmp_path / "manifest"
    assert run_fsum(TWO, "-o", str(manifest), str(top)).code == 0
    return top, manifest


@every_launcher
def test_every_launcher_writes_the_same_bytes(
    launcher: Launcher, made: tuple[Path, Path], tmp_path: Path
) -> None:
    top, manifest = made
    output = tmp_path / "manifest"
    finished = run_fsum(launcher, "-o", str(output), "--chunksize", "8M", str(top))
    assert finished.code == 0, finished.said
    assert finished.out.decode() == f"{signature_of(os.fsencode(top))}  {top}\n"
    assert output.read_bytes() == manifest.read_bytes()
    assert os.listdir(tmp_path) == ["manifest"]


def test_a_manifest_has_every_entry(made: tuple[Path, Path]) -> None:
    top, manifest = made
    lines = manifest.read_bytes().splitlines()
    directories = sum(line.startswith(b"dir ") for line in lines)
    entries = sum(not line.startswith((b"dir ", b". ", b"root", b"end", b"pcm")) for line in lines)
    walked = list(os.walk(top))
    assert directories == len(walked)
    assert entries == sum(len(names) + len(inner) for _, names, inner in walked)
    size = os.stat(top / "large").st_size
    modified, changed = os.stat(top / "large").st_mtime_ns, os.stat(top / "large").st_ctime_ns
    assert any(line.endswith(b" %d %d %d large" % (size, modified, changed)) for line in lines)


@every_launcher
def test_an_equal_tree_passes(launcher: Launcher, made: tuple[Path, Path]) -> None:
    """The tree is in its original place, or elsewhere."""
    top, manifest = made
    for arguments in ([], [str(top)], ["--quick"]):
        finished = run_fsum(launcher, "--check", str(manifest), *arguments)
        assert (finished.code, finished.out) == (0, b""), finished.said
        count = len([top, *top.rglob("*")])
        match = f"fsum: contents of '{top}' match the manifest: {count:,} entries\n"
        assert ("fsum: 0 of " if arguments == ["--quick"] else match) in finished.said


def _change(top: Path) -> set[str]:
    """Make one change of each type; return the expected output of a check."""
    data = bytearray((top / "large").read_bytes())
    data[-1] ^= 1
    (top / "large").write_bytes(data)
    (top / "a-b").rename(top / "x")
    (top / "a-b").write_text("y")
    (top / "link").unlink()
    (top / "link").symlink_to("a-b")
    (top / "a" / ODD).rmdir()
    (top / "a" / "x").unlink()
    (top / "a" / "x").mkdir()
    (top / "d0" / "new").mkdir()
    (top / "d0" / "new" / "inner").write_text("nobody asks for it by itself")
    return {
        "changed  large",
        "changed  a-b",
        "new  x",
        "changed  link",
        "missing  a/odd \\x0a%41/",
        "changed  a/x/",
        "new  d0/new/",
    }


@some_launchers
def test_every_change_is_named(launcher: Launcher, copied: tuple[Path, Path]) -> None:
    top, manifest = copied
    expected = _change(top)
    for how in ([], ["--quick"]):
        result = top.parent / "result"
        arguments = ("--check", str(manifest), *how, "--json", str(result))
        finished = run_fsum(launcher, *arguments)
        assert finished.code == 3, finished.said
        lines = set(finished.out.decode().splitlines())
        assert lines == expected
        report = json.loads(result.read_text())
        assert report["exit_code"] == 3
        assert {
            f"{difference['what']}  {difference['path']}" for difference in report["differences"]
        } == lines
    new = top.parent / "new"
    assert run_fsum(launcher, "-o", str(new), str(top)).code == 0
    compared = run_fsum(launcher, "--diff", str(manifest), str(new))
    assert compared.code == 3
    assert set(compared.out.decode().splitlines()) == lines


def test_files_that_were_swapped_are_named(copied: tuple[Path, Path]) -> None:
    top, manifest = copied
    first, second = sorted((top / "d0").glob("f*"))[:2]
    first.rename(top / "between")
    second.rename(first)
    (top / "between").rename(second)
    finished = run_fsum(TWO, "--check", str(manifest))
    assert sorted(finished.out.decode().splitlines()) == sorted(
        f"changed  d0/{path.name}" for path in (first, second)
    )


def test_quick_trusts_unchanged_times(copied: tuple[Path, Path]) -> None:
    top, manifest = copied
    status = (top / "a" / "x").stat()
    (top / "a" / "x").write_text("y")
    os.utime(top / "a" / "x", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run_fsum(TWO, "--check", str(manifest), "--quick").code == 0
    assert run_fsum(TWO, "--check", str(manifest)).out == b"changed  a/x\n"
    os.utime(top / "a" / "x")
    assert run_fsum(TWO, "--check", str(manifest), "--quick").out == b"changed  a/x\n"


@some_launchers
def test_update_reads_only_changed_files(launcher: Launcher, copied: tuple[Path, Path]) -> None:
    """A file with unchanged size and times keeps its digest, so a forged change is missed."""
    top, manifest = copied
    text = manifest.read_bytes()
    (top / "a" / "x").write_text("new")
    fresh = top.parent / "fresh"
    assert run_fsum(launcher, "-o", str(fresh), str(top)).code == 0
    output = top.parent / "output"
    finished = run_fsum(launcher, "--update", str(manifest), "-o", str(output))
    assert finished.code == 0, finished.said
    assert output.read_bytes() == fresh.read_bytes()
    assert manifest.read_bytes() == text
    result = top.parent / "result"
    finished = run_fsum(launcher, "--update", str(manifest), "--json", str(result))
    assert finished.code == 0, finished.said
    assert manifest.read_bytes() == fresh.read_bytes()
    assert json.loads(result.read_text())["bytes"] == 3
    assert finished.out.decode() == f"{signature_of(os.fsencode(top))}  {top}\n"


@some_launchers
def test_rot_is_a_change_without_a_write(launcher: Launcher, copied: tuple[Path, Path]) -> None:
    """A bit of the manifest's digest is flipped instead of the disk's; the file times stay."""
    top, manifest = copied
    (top / "large").write_text("somebody did this")
    assert run_fsum(launcher, "--rot", str(manifest)).code == 0
    bad = _forge(manifest, top, top / "a-b")
    finished = run_fsum(launcher, "--rot", str(bad))
    assert (finished.code, finished.out) == (3, b"corrupt  a-b\n"), finished.said


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_files_that_were_not_read_are_counted(tmp_path: Path, launcher: Launcher) -> None:
    """The count is in the text and in JSON, with --rot and --quick; missing files count too."""
    top, manifest, result = tmp_path / "top", tmp_path / "manifest", tmp_path / "result"
    for name in ("a", "b", "c", "d/e", "d/f/g"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    assert run_fsum(ONE, "-o", str(manifest), str(top)).code == 0

    def check(*how: str) -> tuple[int, str, tuple[int, int, int]]:
        done = run_fsum(launcher, "--json", str(result), *how, str(manifest))
        report = json.loads(result.read_bytes())
        return done.code, done.said, (report["checked"], report["unchecked"], report["missing"])

    match = f"fsum: contents of '{top}' match the manifest: 8 entries\n"
    assert check("--check") == check("--rot") == (0, match, (5, 0, 0))
    said = "fsum: 0 of 5 files checked (5 of unchanged size and time, not checked)\n"
    assert check("--quick", "--check") == (0, said, (0, 5, 0))
    (top / "new").touch()
    (top / "a").write_text("other")
    said = "fsum: 4 of 5 files checked (1 modified since, not checked)\n"
    assert check("--rot") == (0, said, (4, 1, 0))
    said = "1 changed, 1 new, 1 of 5 files checked (4 of unchanged size and time, not checked)"
    assert check("--quick", "--check") == (3, f"fsum: {said}\n", (1, 4, 0))
    shutil.rmtree(top / "d")
    (top / "b").unlink()
    said = "fsum: 1 of 5 files checked (1 modified since, not checked; 3 missing)\n"
    assert check("--rot") == (0, said, (1, 1, 3))
    assert check("--check") == (3, "fsum: 1 changed, 2 missing, 1 new\n", (2, 0, 3))
    (top / "c").unlink()
    (top / "c").mkdir()
    assert check("--rot")[2] == (0, 2, 3)


def _forge(manifest: Path, top: Path, path: Path) -> Path:
    """Make a manifest of a file with other content, then restore its times."""
    clean = path.read_bytes()
    status = path.stat()
    path.write_bytes(bytes(reversed(clean)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    forged = manifest.parent / "forged"
    assert run_fsum(ONE, "-o", str(forged), str(top)).code == 0
    changed_ns = path.stat().st_ctime_ns
    path.write_bytes(clean)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    text = forged.read_bytes()
    old = b" %d %d %d a-b\n" % (len(clean), status.st_mtime_ns, changed_ns)
    assert old in text
    new = b" %d %d %d a-b\n" % (len(clean), status.st_mtime_ns, path.stat().st_ctime_ns)
    forged.write_bytes(_with_valid_checksums(text.replace(old, new)))
    return forged


def _with_valid_checksums(text: bytes) -> bytes:
    """Return the manifest with valid checksums, like an attacker could."""
    import xxhash

    out: list[bytes] = []
    section: list[bytes] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(b"dir "):
            section = []
        if line.startswith(b". "):
            check = xxhash.xxh3_64(b"".join(section)).hexdigest().encode()
            line = b" ".join([*line.split(b" ")[:3], check]) + b"\n"
        if line.startswith(b"end "):
            words = b" ".join(line.split(b" ")[:3]) + b" "
            check = xxhash.xxh3_128(b"".join(out) + words).hexdigest().encode()
            line = words + check + b"\n"
        section.append(line)
        out.append(line)
    return b"".join(out)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_manifest_is_refused_with_its_line(
    seed: int, made: tuple[Path, Path], tmp_path: Path
) -> None:
    rng = Random(seed)
    text = bytearray(made[1].read_bytes())
    at = rng.randrange(20, len(text))
    if seed % 3 == 0:
        del text[at:]
    elif seed % 3 == 1:
        text[at] ^= 1 << rng.randrange(8)
    else:
        del text[at : at + rng.randrange(1, 5000)]
    bad = tmp_path / "bad"
    bad.write_bytes(text)
    for arguments in (["--check", str(bad)], ["--diff", str(made[1]), str(bad)]):
        finished = run_fsum(ONE, *arguments)
        assert finished.code == 2, finished.said
        assert "damaged" in finished.said
        assert "line " in finished.said


@some_launchers
def test_unreadable_files_are_neither_missing_nor_written(
    launcher: Launcher, copied: tuple[Path, Path]
) -> None:
    top, manifest = copied
    before = manifest.read_bytes()
    for name in ("a-b", "large"):
        (top / name).chmod(0)
    (top / "a").chmod(0)
    prefix = without_rights("dac_override", "dac_read_search")
    checked = run_fsum(launcher, "--check", str(manifest), prefix=prefix)
    assert (checked.code, checked.out) == (1, b""), checked.said
    for name in ("a-b", "large", "a"):
        assert f"'{top}/{name}': Permission denied" in checked.said
    written = run_fsum(launcher, "--update", str(manifest), prefix=prefix)
    assert written.code == 1
    assert "no manifest was written: some entries could not be read" in written.said
    assert manifest.read_bytes() == before
    assert sorted(os.listdir(top.parent)) == ["manifest", "tree"]
    (top / "a").chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "m", "a", "b"], "-o takes one PATH: extra operand 'b'"),
        (["--check", "missing"], "cannot read 'missing'"),
        (["--check", "m", "--rot", "m"], "--check cannot be combined with --rot"),
        (["--quick", "."], "--quick"),
        (["-o", "/nowhere/m", "."], "cannot write"),
        (["-o", ".", "."], "is a directory"),
        (["--check", "m", "-o", "n"], "--output"),
        (["--diff", "m", "m", "."], "two manifests"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("no manifest\n")
    finished = run_fsum(None, *arguments, cwd=os.fsencode(tmp_path))
    assert finished.code == 2, finished.said
    assert said in finished.said
    assert os.listdir(tmp_path) == ["m"]


def test_a_manifest_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    manifest = str(tmp_path / "m")
    assert run_fsum(FOUR, "-o", manifest, str(tmp_path / "file")).code == 0
    assert run_fsum(FOUR, "--check", manifest).code == 0
    (tmp_path / "file").write_text("Content")
    finished = run_fsum(FOUR, "--check", manifest)
    assert (finished.code, finished.out) == (3, b"changed  .\n")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_an_existing_manifest_is_replaced_only_by_force(made: tuple[Path, Path]) -> None:
    """An empty file, as mktemp creates, is not a manifest; --update replaces its own."""
    top, manifest = made
    before = manifest.read_bytes()
    refused = run_fsum(TWO, "-o", str(manifest), str(top))
    assert (refused.code, refused.out) == (2, b"")
    assert "--force" in refused.said
    assert manifest.read_bytes() == before
    other = manifest.with_name("other")
    other.write_text("data")
    assert run_fsum(ONE, "--update", str(manifest), "-o", str(other)).code == 2
    assert other.read_text() == "data"
    other.write_text("")
    assert run_fsum(ONE, "--update", str(manifest), "-o", str(other)).code == 0
    assert run_fsum(ONE, "--update", str(manifest)).code == 0
    assert run_fsum(ONE, "--force", "-o", str(other), str(top)).code == 0
    assert run_fsum(ONE, "-c", str(other)).code == 0
    assert run_fsum(ONE, "--force", str(top)).code == 2


def test_a_full_disk_leaves_the_old_manifest(made: tuple[Path, Path], small: Path) -> None:
    (small / "m").write_text("old")
    finished = run_fsum(TWO, "--force", "-o", str(small / "m"), str(made[0]))
    assert finished.code == 4, finished.said
    assert "cannot write the manifest: No space left" in finished.said
    assert (small / "m").read_text() == "old"
    assert os.listdir(small) == ["m"]


def test_many_differences_are_sorted_in_files(tmp_path: Path, small: Path) -> None:
    names = [f"{'long/' * 24}{number:06d}" for number in range(180_000)]  # none of them exists
    checksums = tmp_path / "list"
    checksums.write_text("".join(f"{0:032x}  {name}\n" for name in reversed(names)))
    arguments = ["--algorithm", "md5", "--check", str(checksums), str(tmp_path)]
    finished = run_fsum(TWO, *arguments, environment={"TMPDIR": str(small)})
    assert finished.code == 4, finished.said
    written = "temporary files:|the queue to the temporary directory: .*"  # whichever is first
    assert re.search(f"cannot write ({written}) ?No space left", finished.said), finished.said
    assert "Traceback" not in finished.said
    finished = run_fsum(TWO, *arguments, environment={"TMPDIR": str(tmp_path)})
    assert finished.code == 3, finished.said
    assert finished.out.decode().splitlines() == [f"missing  {name}" for name in names]
    assert sorted(os.listdir(tmp_path)) == ["list", "small"]
