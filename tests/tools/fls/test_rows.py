"""Rows for programs, compared with os.lstat; the same in JSON, CSV and Parquet."""

from __future__ import annotations

import base64
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pcircle import entries
from pcircle.core.errors import UsageError
from pcircle.fs.attributes import lustre
from pcircle.tools.fls.rows import NAMES, layout_of
from tests.conftest import ROOT
from tests.programs import required
from tests.tools.fcp import trees
from tests.tools.fcp.running import ONE, TWO, Launcher

from .running import every_launcher, listed, ls, rows, run_fls
from .test_listing import odd

__all__ = ["odd"]

FROM_STAT = {
    "mode": "st_mode",
    "links": "st_nlink",
    "uid": "st_uid",
    "gid": "st_gid",
    "size": "st_size",
    "blocks": "st_blocks",
    "block_size": "st_blksize",
    "inode": "st_ino",
    "device": "st_dev",
    "rdev": "st_rdev",
    "mtime_ns": "st_mtime_ns",
    "ctime_ns": "st_ctime_ns",
}
BY_THOUSANDS = 9000


def path_of(row: dict[str, Any]) -> bytes:
    """Return the path of a row, which has exactly one form of it."""
    path, coded = row["path"], row.get("path_b64")
    assert (path is None) != (coded is None)
    return path.encode() if coded is None else base64.b64decode(coded)


def below(top: bytes) -> set[bytes]:
    found = set()
    for directory, directories, files in os.walk(top):
        found |= {os.path.join(directory, name) for name in (*directories, *files)}
    return found


@every_launcher
def test_a_row_has_all_values_of_lstat(odd: bytes, launcher: Launcher) -> None:
    found = rows(launcher, "-RA", odd)
    assert {path_of(row) for row in found} == below(odd)
    assert len(found) == len(below(odd))
    for row in found:
        status = os.lstat(path_of(row))
        assert {key: row[key] for key in FROM_STAT} == {
            key: getattr(status, name) for key, name in FROM_STAT.items()
        }
        if row["kind"] == "l":
            target = row.get("target") or base64.b64decode(row["target_b64"])
            assert os.fsencode(target) == os.readlink(path_of(row))


def test_rows_have_the_order_of_the_listing(odd: bytes) -> None:
    found = [path_of(row) for row in rows(TWO, "-RAt", odd + b"/times", odd + b"/hard")]
    text = listed(TWO, "-1RAt", odd + b"/times", odd + b"/hard")
    names = [line for line in text.split(b"\n") if line and not line.endswith(b":")]
    assert [os.path.basename(path) for path in found] == names


def test_csv_and_json_have_the_same_rows(odd: bytes, place: bytes) -> None:
    written = place + b"/rows.csv"
    assert run_fls(TWO, "-RA", "--acl", "-Z", "--csv", written, odd).out == b""
    with open(written, newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_json = rows(TWO, "-RA", "--acl", "-Z", odd)
    assert len(from_csv) == len(from_json) > 900
    for ours, row in zip(from_csv, from_json, strict=True):
        want = {name: row.get(name) for name in NAMES} | {"xattrs": " ".join(row.get("xattrs", ()))}
        want = {name: "" if value is None else str(value) for name, value in want.items()}
        ignored = {"atime_ns"}
        assert {k: v for k, v in ours.items() if k not in ignored} == {
            k: v for k, v in want.items() if k not in ignored
        }


def test_parquet_has_the_same_rows(odd: bytes, place: bytes) -> None:
    """Another reader reads it back, in more than one group of rows."""
    parquet = pytest.importorskip("pyarrow.parquet")
    os.mkdir(place + b"/wide")
    for number in range(BY_THOUSANDS):
        os.mknod(b"%b/wide/%d" % (place, number))
    written = os.fsdecode(place + b"/rows.parquet")
    finished = run_fls(TWO, "-RA", "--parquet", written, odd, place + b"/wide")
    assert finished.code == 0, finished.said
    table = parquet.read_table(written)
    assert table.column_names == list(NAMES)
    from_json = rows(TWO, "-RA", odd, place + b"/wide")
    assert table.num_rows == len(from_json) > BY_THOUSANDS
    for ours, row in zip(table.to_pylist(), from_json, strict=True):
        want = {name: row.get(name) for name in NAMES}
        want["xattrs"] = row.get("xattrs") or None
        ours["xattrs"] = ours["xattrs"] or None
        del ours["atime_ns"], want["atime_ns"]
        assert ours == want


def test_parquet_without_pyarrow_is_refused(place: bytes) -> None:
    """It is refused before anything is written, with advice."""
    code = "import sys; sys.modules['pyarrow'] = None\nfrom pcircle.tools.fls.cli import main\n"
    code += "sys.exit(main(sys.argv[1:]))"
    written = place + b"/rows.parquet"
    command: list[str | bytes] = [sys.executable, "-c", code, "--parquet", written, place]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 2
    assert b"pip install 'pcircle[parquet]'" in done.stderr
    assert not os.path.exists(written)


def test_signatures_are_those_of_fsum(place: bytes) -> None:
    trees.write_file(place + b"/empty", b"")
    trees.write_file(place + b"/small", b"content")
    trees.write_file(place + b"/large", os.urandom(9_000_000))
    with open(place + b"/sparse", "wb") as file:
        file.truncate(20_000_000)
    os.symlink(b"small", place + b"/link")
    found = {path_of(row): row.get("signature") for row in rows(TWO, "--sum", place)}
    assert found.pop(place + b"/link") is None
    for path, signature in found.items():
        command: list[str | bytes] = [sys.executable, str(ROOT / "bin" / "fsum"), "-q", path]
        said = subprocess.run(command, capture_output=True, check=True).stdout
        assert said.split()[0].decode() == signature


def test_attributes_and_access_lists_are_reported(tmp_path: Path) -> None:
    for name in ("plain", "listed", "named"):
        (tmp_path / name).touch()
    (tmp_path / "directory").mkdir()
    try:
        os.setxattr(tmp_path / "named", "user.one", b"1")
        os.setxattr(tmp_path / "named", "user.a \\name", b"2")
        subprocess.run(
            [required("setfacl"), "-m", "u:1234:r,m::rw", tmp_path / "listed"], check=True
        )
        subprocess.run(
            [required("setfacl"), "-d", "-m", "g:77:x", tmp_path / "directory"], check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this file system has no attributes")
    found = {row["path"].rsplit("/", 1)[1]: row for row in rows(ONE, "--acl", str(tmp_path))}
    assert sorted(found["named"]["xattrs"]) == ["user.a \\name", "user.one"]
    assert found["listed"]["acl"] == "user::rw-,user:1234:r--,group::r--,mask::rw-,other::r--"
    assert "acl" not in found["plain"]
    text = listed(ONE, "-l", "--acl", "--xattr", str(tmp_path)).decode().splitlines()
    plain = ls("-l", str(tmp_path), cwd=b"/").decode().splitlines()
    assert [line for line in text if not line.startswith("    ")] == plain
    shown = {line.split()[-1]: line for line in text if line[:1] in "d-"}
    assert shown["listed"].startswith("-rw-rw-r--+ ")
    assert shown["plain"].startswith("-rw-r--r--  ")
    at = text.index(shown["named"])
    assert text[at + 1 : at + 3] == [r"    xattr user.a \\name", "    xattr user.one"]
    assert any(line.startswith("    default user::") for line in text)


def test_layouts_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored layout is used, since there is no Lustre here."""
    plain = lustre.Stripes(stripe_bytes=1 << 20, count=4, pool=b"fast")
    value = lustre.compose(plain)
    monkeypatch.setattr(lustre, "read_layout", lambda path: value)
    want = {"stripe_count": 4, "stripe_bytes": 1 << 20, "pool": "fast"}
    assert layout_of(b"any") == want
    first = lustre.Component(0, 1 << 20, lustre.Stripes(count=1, stripe_bytes=1 << 16))
    second = lustre.Component(1 << 20, lustre.END_OF_FILE, plain)
    value = lustre.compose(lustre.Composite((first, second)))
    assert layout_of(b"any") == want
    monkeypatch.setattr(lustre, "read_layout", lambda path: None)
    assert layout_of(b"any") == {}


def test_the_function_returns_the_rows(odd: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    listing = entries(odd, recursive=True, almost_all=True, sort="-size,name", jobs=2)
    with pytest.raises(RuntimeError, match="after the last result"):
        str(listing.report)
    rows = list(listing)
    assert {os.fsencode(row) for row in rows} == below(odd)
    report = listing.report
    assert (report.tool, report.exit_code, len(report.ranks)) == ("fls", 0, 2)
    assert len(rows) == len(below(odd)) == report.counts["found"] - 1
    inner = [row for row in rows if (row.path or "").startswith(f"{odd.decode()}/times/")]
    assert [row.size for row in inner] == sorted((row.size for row in inner), reverse=True)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(UsageError, match="cannot list '"):
        next(entries(odd + b"/missing", jobs=1))


def test_a_function_can_write_rows_to_a_file(place: bytes) -> None:
    """Then it returns no rows; other output formats are not available to functions."""
    top = trees.make_directory(place, b"top")
    trees.write_file(top + b"/file", b"content")
    signed = entries(top, sum=True, S=True, jobs=1)
    assert [row.signature is not None for row in signed] == [True]
    for option in ("csv", "json"):
        written = os.fsdecode(place) + f"/rows.{option}"
        options: Any = {option: written}
        listing = entries(top, jobs=1, **options)
        assert list(listing) == []
        assert listing.report.counts["files"] == 1
        assert "/top/file" in Path(written).read_text()
    with pytest.raises(TypeError, match="does not take 'total'"):
        entries(top, total=True, jobs=1)  # type: ignore[call-arg]


REFUSED = [
    (["--json", "x", "--csv", "y"], "--json cannot be combined with --csv"),
    (["--total", "--csv", "y"], "--csv cannot be combined with --total"),
    (["--sum"], "--sum requires --json, --csv or --parquet"),
    (["--total", "-S"], "--total cannot be combined with a sort order"),
    (["-d", "--total"], "--directory cannot be combined with --total"),
    (["--sort=sise"], "--sort: unknown 'sise'; choose from name, size,"),
    (["--time=birth"], "--time: unknown 'birth'; choose from mtime, atime, ctime"),
    (["--time-style=fancy"], "unknown time style 'fancy'"),
    (["--csv", "/nowhere/x"], "its directory does not exist"),
    (["--color=blue"], "--color: invalid value 'blue'; choose from always, auto, never"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=[" ".join(o) for o, _ in REFUSED])
def test_invalid_options_are_refused(
    place: bytes, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from pcircle.tools.fls.cli import main

    assert main([*options, os.fsdecode(place)]) == 2
    assert said in capsys.readouterr().err
    assert os.listdir(place) == []


def test_json_is_one_document(place: bytes) -> None:
    trees.write_file(place + b"/file", b"")
    os.mkdir(place + b"/empty")
    for operand, count in ((b"/empty", 0), (b"", 2)):
        document = json.loads(listed(ONE, "--json", "-", place + operand))
        assert len(document["entries"]) == count
        assert (document["schema"], document["tool"], document["exit_code"]) == (1, "fls", 0)
        assert document["counts"]["found"] == count + 1


def test_unsorted_rows_have_no_headings(place: bytes) -> None:
    """A filter makes the tool look entries up one directory at a time."""
    top = trees.make_directory(place, b"top")
    trees.write_file(top + b"/file", b"content")
    found = list(entries(top, recursive=True, sort="none", kind="f", jobs=1))
    assert [row.size for row in found] == [7]
    written = place + b"/rows.json"
    assert run_fls(ONE, "-R", "--sort=none", "--kind=f", "--json", written, top).code == 0
    with open(written, "rb") as file:
        assert [row["size"] for row in json.load(file)["entries"]] == [7]
