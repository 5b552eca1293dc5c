"""The inside of files: holes, layouts, compressibility; and pictures."""

from __future__ import annotations

import json
import os
import random
import struct
from importlib.util import find_spec

import pytest

from pcircle.fs.attributes.lustre import Component, Composite, Stripes
from pcircle.tools.fprof.profile.examinations import NO_LAYOUT, PIECE_BYTES, _drawn, describe
from tests.fusefs.fixture import Mount
from tests.fusefs.layouts import EOF, MDT, NAME, Entry, Md, pack_composite
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights
from tests.tools.fprof.running import profiled, run_fprof, some_launchers

MIB = 1 << 20


# ---- holes ---------------------------------------------------------------------------


@some_launchers
def test_holes(launcher: Launcher, place: bytes) -> None:
    tree = place + b"/tree"
    os.mkdir(tree)
    holes = 0
    for number, (size, data) in enumerate(
        [(10 * MIB, []), (MIB, [0]), (MIB, [MIB - 4096]), (8 * MIB, [0, 3 * MIB]), (4096, [0])]
    ):
        with open(tree + b"/%d" % number, "wb") as file:
            for offset in data:
                file.seek(offset)
                file.write(b"x" * 4096)
            file.truncate(size)
        holes += size - 4096 * len(data)
    sparse = profiled(launcher, "--sparse", tree)["sparse"]
    assert sparse["number"] == 4
    assert sparse["bytes"] == 20 * MIB
    assert sparse["hole_bytes"] == holes == sparse["bytes"] - sparse["allocated_bytes"]
    assert (sparse["compressed_bytes"], sparse["unknown"]) == (0, 0)


def test_a_sparse_file_that_may_not_be_opened_is_counted_as_unknown(place: bytes) -> None:
    os.mkdir(place + b"/tree")
    with open(place + b"/tree/file", "wb") as file:
        file.truncate(MIB)
    os.chmod(place + b"/tree/file", 0)
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fprof(ONE, "--sparse", place + b"/tree", prefix=prefix)
    assert finished.code == 0
    assert b"not examined" in finished.out


def test_without_the_option_no_file_is_read(place: bytes) -> None:
    assert profiled(ONE, place)["sparse"] is None


# ---- layouts -------------------------------------------------------------------------


def test_layouts_are_distinguished(fuse: Mount) -> None:
    mounted = fuse(lustre=True)
    os.setxattr(mounted.path, NAME, Md(2, MIB).pack())
    parts = [Entry(0, MIB, Md(0, MIB, pattern=MDT)), Entry(MIB, EOF, Md(6, 4 * MIB, b"disk"))]
    wide = Md(4, 2 * MIB, b"flash").pack()
    layouts = {b"usual": None, b"wide": wide, b"parts": pack_composite(parts), b"again": wide}
    for name, layout in layouts.items():
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOCTTY | os.O_ASYNC
        fd = os.open(os.path.join(mounted.path, name), flags if layout else os.O_CREAT | os.O_RDWR)
        if layout is not None:
            os.setxattr(fd, NAME, layout)
        os.write(fd, b"x" * 1000)
        os.close(fd)
    stripes = profiled(TWO, "--stripe", mounted.path)["stripes"]
    assert {row["label"]: (row["number"], row["bytes"]) for row in stripes} == {
        "4 x 2.0 MiB in flash": (2, 2000),
        "2 x 1.0 MiB": (1, 1000),
        "[0 B: on metadata target, 1.0 MiB: 6 x 4.0 MiB in disk]": (1, 1000),
    }


def test_without_lustre_no_file_has_a_layout(place: bytes) -> None:
    with open(place + b"/file", "wb") as file:
        file.write(b"x")
    (row,) = profiled(ONE, "--stripe", place)["stripes"]
    assert (row["label"], row["number"]) == (NO_LAYOUT, 1)


def test_odd_layouts_have_words_too() -> None:
    assert describe(Stripes()) == "default x default"
    assert describe(Stripes(count=0xFFFF, stripe_bytes=MIB)) == "all x 1.0 MiB"
    many = Composite(tuple(Component(n, n + 1, None) for n in range(20)), mirrors=2)
    assert describe(many).endswith("7 B: foreign, ..., 2 mirrors]")


# ---- compressibility -----------------------------------------------------------------


@pytest.fixture(scope="session")
def compressible(shared_place: bytes) -> bytes:
    """Create files of many sizes with one third of noise and two thirds of one letter."""
    tree = os.path.join(shared_place, b"compressible")
    dice = random.Random(7)
    for number in range(300):
        folder = tree + b"/%d" % (number % 7)
        os.makedirs(folder, exist_ok=True)
        size = dice.randrange(1, 20 * PIECE_BYTES)
        with open(folder + b"/noise-%d" % number, "wb") as file:
            file.write(dice.randbytes(size))
        for letter in (b"a", b"b"):
            with open(folder + b"/%b-%d" % (letter, number), "wb") as file:
                file.write(letter * size)
    return tree


def test_the_error_of_the_estimate_is_right(compressible: bytes) -> None:
    found = profiled(TWO, "--compress=500", compressible)["compression"]
    assert found["pieces"] == 500
    assert found["unread"] == 0
    assert 0.01 < found["error"] < 0.06
    truth = 1 / 3 + 0.0045 * 2 / 3
    # Three times the 95 % confidence interval; the sample is the same in each run.
    assert abs(found["ratio"] - truth) < 1.5 * found["error"]
    assert 7000 < found["of_pieces"] < 12_000


def test_a_sample_of_all_has_no_error_and_is_the_same_for_all_ranks(compressible: bytes) -> None:
    part = compressible + b"/0"  # of more than the default of 1,024 pieces
    one = profiled(ONE, "--compress=100000", part)
    four = profiled(Launcher(jobs=4), "--compress=100000", part)
    assert one["compression"] == four["compression"]
    assert one["compression"]["error"] == 0
    assert one["compression"]["of_pieces"] == one["compression"]["pieces"]
    assert one["compression"]["pieces"] > 1024
    result = profiled(ONE, "--compress", part)["compression"]
    assert result == profiled(Launcher(jobs=4), "--compress", part)["compression"]
    assert result["pieces"] == 1024


def test_batches_of_lots_have_the_right_distribution() -> None:
    """The lowest of m lots has the mean 1 / (m + 1); each piece occurs once, in order."""
    for pieces in (1, 2, 7, 100):
        drawn = [list(_drawn(b"%d" % seed, pieces)) for seed in range(400)]
        lowest = sum(lots[0][0] for lots in drawn) / 400 / 2**63
        assert lowest == pytest.approx(1 / (pieces + 1), rel=0.15)
        for lots in drawn:
            assert sorted(piece for _, piece in lots) == list(range(pieces))
            assert [lot for lot, _ in lots] == sorted(lot for lot, _ in lots)


@some_launchers
def test_a_piece_counts_once_for_all_names_of_its_file(launcher: Launcher, place: bytes) -> None:
    """Each piece of a file has the same chance: the second halves of these files are noise."""
    dice = random.Random(3)
    tree = place + b"/tree"
    pieces = 0
    for number in range(40):
        names = [tree + b"/%d/%d-%d" % (link % 5, number, link) for link in range(number % 9 + 1)]
        for name in names:
            os.makedirs(os.path.dirname(name), exist_ok=True)
        half = dice.randrange(1, 4)
        pieces += 2 * half
        with open(names[0], "wb") as file:
            file.write(bytes(half * PIECE_BYTES) + dice.randbytes(half * PIECE_BYTES))
        for name in names[1:]:
            os.link(names[0], name)
    found = profiled(launcher, "--compress=10000", tree)["compression"]
    assert (found["pieces"], found["of_pieces"], found["error"]) == (pieces, pieces, 0)
    assert found["ratio"] == pytest.approx(0.5, abs=0.01)
    result = profiled(launcher, "--compress=90", tree)["compression"]
    assert result == profiled(ONE, "--compress=90", tree)["compression"]
    assert abs(result["ratio"] - 0.5) < 3 * result["error"]


def test_equal_pieces_do_not_imply_a_uniform_file(place: bytes) -> None:
    """One piece in twenty is noise, and a sample of ten rarely contains one."""
    tree = place + b"/tree"
    os.mkdir(tree)
    for number in range(400):
        with open(tree + b"/%d" % number, "wb") as file:
            file.write(os.urandom(PIECE_BYTES) if not number % 20 else bytes(PIECE_BYTES))
    for pieces in (1, 2, 10, 30):
        found = profiled(ONE, f"--compress={pieces}", tree)["compression"]
        # The selection depends on names; with some of the noise there is a standard error.
        all_alike = found["ratio"] < 0.01 or found["ratio"] > 0.99
        assert found["error"] >= (2.7 / max(3, pieces) if all_alike else 0.02)
        assert abs(found["ratio"] - 0.054) <= max(found["error"], 0.3)


def test_unreadable_pieces_increase_the_error(place: bytes) -> None:
    tree = place + b"/tree"
    os.mkdir(tree)
    for number in range(10):
        with open(tree + b"/%d" % number, "wb") as file:
            file.write(bytes(1000))
        os.chmod(tree + b"/%d" % number, 0 if number < 3 else 0o600)
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fprof(ONE, "-q", "--json", "-", "--compress", tree, prefix=prefix)
    found = json.loads(finished.out)["compression"]
    assert (found["pieces"], found["unread"], found["of_pieces"]) == (7, 3, 10)
    assert found["error"] == pytest.approx(0.3)


# ---- pictures ------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(compressible: bytes, place: bytes, ending: str) -> None:
    picture = place + b"/picture." + ending.encode()
    finished = run_fprof(TWO, "-q", "--plot", picture, compressible)
    assert (finished.code, finished.said) == (0, "")
    with open(picture, "rb") as file:
        head = file.read(300)
    if ending == "png":
        width, height = struct.unpack(">II", head[16:24])
        assert min(width, height) > 500
    else:
        assert b"<svg" in head


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_picture_of_odd_names(place: bytes) -> None:
    """Names look like formulas, are not valid text, or have letters that no installed font has."""
    paths = [place + name for name in (b"/$x_^{", b"/n\xff\x01", "/\N{HIRAGANA LETTER A}".encode())]
    for path in paths:
        os.mkdir(path)
    for ending in ("png", "svg", "pdf"):
        finished = run_fprof(ONE, "-q", "--plot", place + b"/picture." + ending.encode(), *paths)
        assert (finished.code, finished.said) == (0, "")


@pytest.mark.skipif(find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_without_matplotlib_a_picture_is_refused_with_advice(place: bytes) -> None:
    finished = run_fprof(ONE, "--plot", place + b"/picture.png", place)
    assert finished.code == 2
    assert "pip install 'pcircle[plot]'" in finished.said


def test_a_picture_of_unknown_format_is_refused(place: bytes) -> None:
    finished = run_fprof(ONE, "--plot", place + b"/picture.bmp", place)
    assert finished.code == 2
    assert ".png, .svg, .pdf" in finished.said


def test_reading_preserves_times(shared_place: bytes) -> None:
    tree = os.path.join(shared_place, b"times")
    os.mkdir(tree)
    for name in (b"control", b"file"):
        with open(os.path.join(tree, name), "wb") as file:
            file.write(bytes(200_000))
        os.utime(os.path.join(tree, name), (1_000_000, 2_000_000))
    path, control = (os.path.join(tree, name) for name in (b"file", b"control"))
    with open(control, "rb") as file:
        file.read()
    if os.stat(control).st_atime == 1_000_000:
        pytest.skip("this file system keeps no access times")
    before = os.stat(path)
    done = run_fprof(ONE, "--compress", "--json", "-", path)
    assert done.code == 0, done.said
    after = os.stat(path)
    assert (after.st_atime_ns, after.st_ctime_ns) == (before.st_atime_ns, before.st_ctime_ns)
