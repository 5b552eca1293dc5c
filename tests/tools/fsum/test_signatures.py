"""fsum: the signature matches a plain reference, however the work is divided.

The tests cover the vectors of the format, random trees, every launcher and chunk size, changes that
must or must not affect it, and unreadable or changing files, which are named and have no signature.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pcircle.jobs.failures import decode
from tests.signed import signature_of
from tests.tools.fcp.meddling import EVERY_TIME, Deed, meddling
from tests.tools.fcp.running import FOUR, ONE, TWO, Launcher, copy, without_rights

from .running import every_launcher, run_fsum, signed, some_launchers

MIB = 1 << 20
VECTORS = {
    "a.txt": "063357736cdc1367f213054e5f38719e",
    "zero": "ef2dddbcb1516abf809edf87e5f0f6f7",
    "link": "10bfd80f87a7122c6f7905531e1d70cb",
    "empty": "6bc3f5d5e242de9b29cbec71d1af7990",
    "pipe": "78a532f7e4121ee3d11b76eefe9008ca",
    "sub/big.bin": "eb0dac5ff469f5ddc4323d6c7f34212a",
    "sub": "98ddf7ed682e4a51f8af35ca9363108c",
    "": "480135662d079012bab538599e42d0c9",
}
SHA256 = "5e203d657db7d8730eedbb24cd3a11d07a4f4305451a1df49f2094625fb66be3"


@pytest.fixture
def t(tmp_path: Path) -> Path:
    """Create the tree of the vectors."""
    top = tmp_path / "t"
    for name in ("empty", "sub"):
        (top / name).mkdir(parents=True)
    (top / "a.txt").write_text("hello\n")
    (top / "zero").touch()
    (top / "link").symlink_to("a.txt")
    os.mkfifo(top / "pipe")
    (top / "sub" / "big.bin").write_bytes((bytes(range(256)) * 20_000)[:5_000_000])
    Path(os.fsdecode(os.fsencode(top / "sub") + b"/\xff\xfe")).write_text("non-utf8 name")
    return top


@some_launchers
def test_vectors(launcher: Launcher, t: Path) -> None:
    """A link that is a PATH is followed; in a tree it is signed as a link."""
    names = [name for name in VECTORS if name != "link"]
    found = signed(launcher, *(str(t / name) for name in names))
    assert found == [f"pcsig1:xxh128:{VECTORS[name]}" for name in names]
    assert signed(launcher, "-a", "sha256", str(t)) == [f"pcsig1:sha256:{SHA256}"]
    assert signed(launcher, str(t / "link")) == [f"pcsig1:xxh128:{VECTORS['a.txt']}"]
    assert signature_of(os.fsencode(t / "link")).endswith(VECTORS["link"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Create files of all sizes, holes, links, a full directory, a deep one."""
    top = os.fsencode(tmp_path_factory.mktemp("signed")) + b"/src"
    for path in (b"many", b"deep/er/est", b"empty"):
        os.makedirs(os.path.join(top, path))
    for number in range(1700):
        with open(top + b"/many/%d" % number, "wb") as stream:
            stream.write(b"%d" % number * (number % 50))
    sizes = (0, 1, 128 << 10, (128 << 10) + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 13 * MIB + 7)
    for size in (*sizes, 75 * MIB + 5):
        with open(top + b"/deep/%d" % size, "wb") as stream:
            stream.write((b"%d" % size * (size // 2 + 1))[:size])
    for name, end in ((b"small", 300_000), (b"middle", 9 * MIB + 3), (b"large", 70 * MIB + 11)):
        with open(top + b"/deep/er/holes-" + name, "wb") as stream:
            stream.truncate(end)
            for at in (end // 3, end // 2 + 4097):
                stream.seek(at)
                stream.write(b"data")
    with open(top + b"/deep/hole", "wb") as stream:
        stream.truncate(40 * MIB + 1)
    os.symlink(b"nowhere/\xff", top + b"/deep/link")
    os.mkfifo(top + b"/deep/pipe")
    return top


@every_launcher
def test_every_launcher_gives_the_same_signature(launcher: Launcher, tree: bytes) -> None:
    assert signed(launcher, tree) == [signature_of(tree)]


@pytest.mark.parametrize("chunk", ["1", "4M", "12M", "1G"])
@pytest.mark.parametrize("algorithm", ["xxh128", "sha256"])
def test_every_chunk_size_gives_the_same_signature(chunk: str, algorithm: str, tree: bytes) -> None:
    found = signed(TWO, "-a", algorithm, "--chunksize", chunk, tree)
    assert found == [signature_of(tree, algorithm)]


def test_the_signature_equals_that_of_a_copy(tree: bytes, tmp_path: Path) -> None:
    done = copy(FOUR, "-a", "-s", tree, os.fsencode(tmp_path / "dst"))
    printed = done.out.split()[0].decode()
    assert signed(FOUR, tree, str(tmp_path / "dst")) == [printed, printed]


names = st.binary(min_size=1, max_size=5).filter(
    lambda name: not set(name) & set(b"\0/") and name not in (b".", b"..")
)
contents = st.one_of(
    st.binary(max_size=30), st.integers(0, 9 * MIB).map(lambda size: (b"%d" % size * size)[:size])
)
trees = st.recursive(
    st.one_of(contents, names.map(lambda name: ("link", name))),
    lambda inner: st.dictionaries(names, inner, max_size=6),
    max_leaves=20,
)


def _build(path: bytes, what: object) -> None:
    if isinstance(what, dict):
        os.mkdir(path)
        for name, inner in what.items():
            _build(path + b"/" + name, inner)
    elif isinstance(what, tuple):
        os.symlink(what[1], path)
    else:
        assert isinstance(what, bytes)
        with open(path, "xb") as stream:
            stream.write(what)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=st.dictionaries(names, trees, max_size=5))
def test_any_tree(tree: dict[bytes, object], tmp_path_factory: pytest.TempPathFactory) -> None:
    top = os.fsencode(tmp_path_factory.mktemp("any")) + b"/top"
    _build(top, tree)
    assert signed(TWO, "--chunksize", "4M", top) == [signature_of(top)]


def test_changes_that_affect_the_signature(t: Path) -> None:
    """One bit, two swapped files, a name, a link's target, an empty directory, a type."""
    seen = set(signed(ONE, str(t)))

    def changed() -> bool:
        (now,) = signed(ONE, str(t))
        new = now not in seen
        seen.add(now)
        return new

    data = bytearray((t / "sub" / "big.bin").read_bytes())
    data[4_500_000] ^= 1
    (t / "sub" / "big.bin").write_bytes(data)
    assert changed()
    (t / "a.txt").rename(t / "x")
    (t / "zero").rename(t / "a.txt")
    (t / "x").rename(t / "zero")
    assert changed()
    (t / "zero").rename(t / "nought")
    assert changed()
    (t / "link").unlink()
    (t / "link").symlink_to("b.txt")
    assert changed()
    (t / "empty").rmdir()
    assert changed()
    (t / "empty").touch()
    assert changed()


def test_changes_that_do_not_affect_the_signature(t: Path, tmp_path: Path) -> None:
    (before,) = signed(ONE, str(t))
    os.utime(t / "a.txt", (1, 1))
    (t / "a.txt").chmod(0o600)
    os.link(t / "zero", tmp_path / "elsewhere")
    assert signed(ONE, str(t)) == [before]
    t.rename(tmp_path / "another name")
    assert signed(ONE, str(tmp_path / "another name")) == [before]


def test_filters(t: Path) -> None:
    whole = signed(ONE, "--exclude=/sub", "--exclude=pipe", str(t))
    for name in os.listdir(os.fsencode(t / "sub")):
        os.unlink(os.fsencode(t / "sub") + b"/" + name)
    (t / "sub").rmdir()
    (t / "pipe").unlink()
    assert whole == signed(ONE, str(t)) == [signature_of(os.fsencode(t))]


@some_launchers
def test_unreadable_files_are_named(launcher: Launcher, t: Path, tmp_path: Path) -> None:
    """Its directories have no signature, but another PATH has one."""
    (t / "sub" / "big.bin").chmod(0)
    (t / "closed").mkdir(mode=0)
    good = tmp_path / "good"
    good.write_text("good")
    log, result = tmp_path / "log", tmp_path / "result"
    arguments = ("--error-log", str(log), "--json", str(result), str(t), str(good))
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fsum(launcher, *arguments, prefix=prefix)
    assert finished.code == 1, finished.said
    assert finished.out.decode() == f"{signature_of(os.fsencode(good))}  {good}\n"
    assert f"cannot open '{t}/sub/big.bin': Permission denied" in finished.said
    assert f"'{t}/closed': Permission denied" in finished.said
    assert f"no signature of '{t}'" in finished.said
    report = json.loads(result.read_text())
    assert (report["failed"], report["exit_code"]) == (2, 1)
    assert [entry["signature"] is None for entry in report["signatures"]] == [True, False]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {decode(line["entry"]) for line in lines} == {b"sub/big.bin", b"closed"}


@pytest.mark.parametrize(("chunk", "size_bytes"), [("4M", 10 * MIB), ("1G", 33 * MIB)])
def test_a_file_that_changes_during_the_run_is_named(
    chunk: str, size_bytes: int, tmp_path: Path
) -> None:
    """It is modified before each read of a part of it."""
    path, log = tmp_path / "busy", tmp_path / "log"
    path.write_bytes(bytes(size_bytes))
    always = Deed("preadv", str(path), "rewrite", str(path), "new", end=EVERY_TIME)
    program = meddling("fsum", str(tmp_path), [always])
    arguments = ("--chunksize", chunk, "--error-log", str(log), str(path))
    finished = run_fsum(TWO, *arguments, program=program)
    assert finished.code == 1, finished.said
    assert f"cannot read '{path}': it changed while it was read" in finished.said
    failure = json.loads(log.read_bytes())
    assert (failure["errno"], failure["error"]) == (None, "changed"), "no call has failed"
    assert finished.out == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing operand PATH"),
        (["missing"], "cannot sign 'missing': No such file"),
        (["-a", "md4", "."], "--algorithm: unknown algorithm 'md4'; choose from xxh128, sha256"),
        (["--algoritm=sha256", "."], "did you mean --algorithm?"),
        (["--chunksize=x", "."], "--chunksize"),
        ([""], "empty file name"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    finished = run_fsum(None, *arguments, cwd=os.fsencode(tmp_path))
    assert finished.code == 2
    assert said in finished.said


def test_files_of_proc_are_read_to_their_end() -> None:
    if not os.path.exists("/proc/version"):
        pytest.skip("there is no /proc")
    with open("/proc/version", "rb") as stream:
        content = stream.read()
    place = Path("/proc/version")
    import tempfile

    with tempfile.NamedTemporaryFile() as same:
        same.write(content)
        same.flush()
        assert signed(ONE, str(place)) == signed(ONE, same.name)
