"""fsum's options: each has an effect in every combination, or is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.signed import signature_of
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import run_fsum, signed, some_launchers


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a few files, with their manifest and list in the same directory."""
    top = tmp_path / "tree"
    (top / "kept").mkdir(parents=True)
    for name in ("a", "kept/b", "kept/c.tmp", "d.tmp"):
        (top / name).write_text(name)
    assert run_fsum(ONE, "-o", str(tmp_path / "manifest"), str(top)).code == 0
    listed = run_fsum(ONE, "--format=coreutils", "-a", "sha256", str(top))
    (tmp_path / "list").write_bytes(listed.out)
    return top


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--diff manifest manifest --exclude=x", "--diff takes two manifests and no other option"),
        ("--diff manifest manifest -a sha256", "--diff takes two manifests and no other option"),
        ("--diff manifest manifest --quick", "--diff takes two manifests and no other option"),
        ("--diff manifest manifest -j2", "--diff takes two manifests and no other option"),
        (
            "--diff manifest manifest --error-log=log",
            "--diff takes two manifests and no other option",
        ),
        (
            "--diff manifest manifest --chunksize=4M",
            "--diff takes two manifests and no other option",
        ),
        ("--check manifest -a sha256", "was made with xxh128"),
        ("--update manifest -a sha256", "was made with xxh128"),
        ("--check list --exclude=*.tmp", "cannot be combined with filters, --files-from or -x"),
        ("--check list -x", "cannot be combined with filters, --files-from or -x"),
        ("--check list --chunksize=4M", "--chunksize"),
        ("--format=coreutils --chunksize=4M tree", "--chunksize"),
        ("--check manifest --rot manifest", "--check cannot be combined with --rot"),
        ("--quick tree", "--quick"),
        ("--rot manifest -o other", "--output"),
        ("-o other tree tree", "-o takes one PATH: extra operand 'tree'"),
        ("-o other --format=coreutils tree", "--format"),
        ("--update list", "is not a manifest"),
    ],
)
def test_options_without_effect_are_refused(arguments: str, said: str, tree: Path) -> None:
    before = sorted(os.listdir(tree.parent))
    finished = run_fsum(ONE, *arguments.split(), cwd=os.fsencode(tree.parent))
    assert (finished.code, finished.out) == (2, b""), finished.said
    assert said in finished.said
    assert sorted(os.listdir(tree.parent)) == before


@some_launchers
def test_excluded_entries_are_not_checked(launcher: Launcher, tree: Path) -> None:
    """--check ignores them whether the manifest has them or not, and checks all others."""
    manifest = str(tree.parent / "manifest")
    assert run_fsum(launcher, "--check", manifest, "--exclude=*.tmp").code == 0
    for name in ("d.tmp", "kept/c.tmp"):
        (tree / name).unlink()
    (tree / "kept" / "new.tmp").touch()
    (tree / "kept" / "b").unlink()
    for rule in ("--exclude=*.tmp", "--exclude=/kept/*.tmp"):
        checked = run_fsum(launcher, "--check", manifest, rule)
        assert checked.code == 3
        expected = [b"missing  kept/b"] + [b"missing  d.tmp"] * ("kept" in rule)
        assert sorted(checked.out.splitlines()) == sorted(expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_other_file_systems_are_not_entered(tree: Path) -> None:
    """A mount point is represented by an empty directory, in a check as well."""
    place = tree / "kept"
    manifest = str(tree.parent / "whole")
    whole = signature_of(os.fsencode(tree))
    mounted = ["mount", "-t", "tmpfs", "tmpfs", str(place)]
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (place / "inside").write_text("inside")
        assert run_fsum(ONE, "-o", manifest, str(tree)).code == 0
        found = signed(ONE, "-x", str(tree))
        (place / "inside").unlink()
        assert found == [signature_of(os.fsencode(tree))]
        assert found != [whole]
        checked = run_fsum(ONE, "-x", "--check", manifest)
        assert (checked.code, checked.out) == (0, b""), checked.said
        assert run_fsum(ONE, "--check", manifest).code == 3
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "signed"),
        (["-o", "new.manifest"], "signed"),
        (["--check", "manifest"], "checked"),
        (["--check", "list", "-a", "md5"], "checked"),
        (["--format=coreutils"], "read"),
    ],
    ids=" ".join,
)
def test_verbose_lists_what_is_read(options: list[str], word: str, tmp_path: Path) -> None:
    """The names are on standard error, because standard output has the result."""
    here, top = os.fsencode(tmp_path), tmp_path / "d"
    (top / "sub" / "empty").mkdir(parents=True)
    for name, size in (("a", 1), ("sub/b\n", 5), ("sub/large", 40 << 20)):
        (top / name).touch()
        os.truncate(top / name, size)
    (top / "link").symlink_to("a")
    run_fsum(ONE, "-o", "manifest", "d", cwd=here)
    listed = run_fsum(ONE, "--format=coreutils", "-a", "md5", "d", cwd=here)
    (tmp_path / "list").write_bytes(listed.out)
    quiet = run_fsum(TWO, *options, *(["d"] if word != "checked" else []), cwd=here)
    (tmp_path / "new.manifest").unlink(missing_ok=True)
    finished = run_fsum(TWO, "-v", *options, *(["d"] if word != "checked" else []), cwd=here)
    assert (finished.code, finished.out) == (0, quiet.out)
    files = {"d/a", r"d/sub/b\x0a", "d/sub/large"}
    if word == "signed" or "manifest" in options:
        files |= {"d", "d/sub", "d/sub/empty", "d/link"}
    base = f"{tmp_path}/" if "manifest" in options else ""
    lines = [line for line in finished.said.splitlines() if not line.startswith("fsum: ")]
    assert sorted(lines) == sorted(f"{word} '{base}{name}'" for name in files)
