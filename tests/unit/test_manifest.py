"""The manifest's bytes: written entries are found again, by bisection and as a stream."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pcircle.ops.digest.manifest import (
    DamagedManifestError,
    Manifest,
    ManifestEntry,
    SectionWriter,
    escape,
    parse_entry,
    unescape,
    write_manifest,
)
from pcircle.walk.segments import SegmentWriter, remove, result

NAMES = [b"a", b"a-b", b"a b", b"\xff", b"\n", b"%41", b"z" * 255, b".", b"dir ", b"end "]
DIGEST = bytes(range(16))


def _tree(rng: Random) -> dict[bytes, list[ManifestEntry]]:
    """Return the entries of each directory by its path."""
    names = [name for name in NAMES if name != b"."]
    found: dict[bytes, list[ManifestEntry]] = {}
    paths = [b""]
    while paths:
        path = paths.pop()
        chosen = sorted(rng.sample(names, rng.randrange(len(names)) if len(found) < 40 else 0))
        entries = []
        for name in chosen:
            directory = rng.random() < 0.4 and path.count(b"/") < 3
            entries.append(
                ManifestEntry(name, b"d" if directory else b"f", rng.randbytes(16),
                              rng.randrange(1 << 40), rng.randrange(-(10**18), 10**18),
                              rng.randrange(10**18))
            )  # fmt: skip
            if directory:
                paths.append(path + b"/" + name if path else name)
        found[path] = entries
    # Entries of a directory follow it, so in reverse each digest covers final entries.
    for path in sorted(found, key=lambda entry: entry.split(b"/"), reverse=True):
        found[path] = [
            entry._replace(digest=_digest(found[path + b"/" + entry.name if path else entry.name]))
            if entry.kind == b"d"
            else entry
            for entry in found[path]
        ]
    return found


def _digest(entries: list[ManifestEntry]) -> bytes:
    text = b"".join(
        len(entry.name).to_bytes(2, "big") + entry.name + entry.kind + entry.digest
        for entry in entries
    )
    return xxhash.xxh3_128(b"dir\0" + text + len(entries).to_bytes(8, "big")).digest()


@pytest.mark.parametrize("seed", range(25))
def test_every_directory_and_every_name_is_found(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    tree = _tree(rng)
    place = os.fsencode(tmp_path) + b"/part"
    parts = [SegmentWriter(b"%b-%d" % (place, number)) for number in range(3)]
    for path in rng.sample(sorted(tree), len(tree)):
        writer = SectionWriter(rng.choice(parts))
        writer.begin(path)
        half = len(tree[path]) // 2
        writer.add(tree[path][:half])
        writer.add(tree[path][half:])
        writer.end(path, len(tree[path]), _digest(tree[path]))
    for part in parts:
        part.close()
    root = ManifestEntry(b"/the root", b"d", _digest(tree[b""]), 7, -1, 2)
    with open(tmp_path / "manifest", "wb") as stream:
        write_manifest(
            result(place, 3), stream, "xxh128", root, lambda: 1 + sum(map(len, tree.values()))
        )
    remove(place, 3)
    assert os.listdir(tmp_path) == ["manifest"]
    manifest = Manifest(os.fsencode(tmp_path / "manifest"))
    manifest.verify()
    assert (manifest.root, manifest.algorithm.name) == (root, "xxh128")
    for path, entries in tree.items():
        section = manifest.section(path)
        assert section is not None
        assert list(section) == entries
        assert (section.count, section.digest) == (len(entries), _digest(entries))
        for entry in entries:
            assert section.find(entry.name) == entry
        for name in (b"", b"b", b"zz", b"\0"):
            assert section.find(name) is None
    for path in (b"none", b"a/none", b"zz", b"\xff\xff", b"a-b-c"):
        if path not in tree:
            assert manifest.section(path) is None


HEADS = (
    b"pcmanifest 1 xxh128 md5\n",
    b"pcmanifest 2 xxh128 md4\n",
    b"pcmanifest 2 xxh128 md5 md5\n",
    b"pcmanifest 2 xxh128 \xff\n",
    b"pcmanifest 3 xxh128\n",
)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for text in (b"", b"x", b"pcmanifest 2 xxh128\n", b"pcmanifest 1 md4\n", b"\0" * 100, *HEADS):
        (tmp_path / "m").write_bytes(text)
        with pytest.raises(DamagedManifestError, match="line 1: "):
            Manifest(os.fsencode(tmp_path / "m"))
    (tmp_path / "m").write_bytes(b"pcmanifest 1 xxh128\nroot what\n")
    with pytest.raises(DamagedManifestError, match="line 2: "):
        Manifest(os.fsencode(tmp_path / "m"))


@pytest.mark.parametrize("line", ["f %b 1 2 3 name", "d %b 1 2 3 0101 name", "f %b 1 2 3 01 name"])
def test_a_missing_checksum_is_damage(line: str, tmp_path: Path) -> None:
    """Checksums of xxh128 have 16 bytes, and only files have them."""
    text = line.encode() % DIGEST.hex().encode()
    entry = parse_entry(text, 16)
    with open(tmp_path / "m", "wb") as stream:
        root = entry._replace(name=b"/root")
        write_manifest([], stream, "xxh128", root, lambda: 1, "md5")
    with pytest.raises(DamagedManifestError, match="line 2: a checksum is missing"):
        Manifest(os.fsencode(tmp_path / "m"))
    root = ManifestEntry(b"/root", b"d", DIGEST, 1, 2, 3)
    section = b"dir .\n" + text + b"\n. 1 %b 00\n" % DIGEST.hex().encode()
    with open(tmp_path / "m", "wb") as stream:
        write_manifest([section], stream, "xxh128", root, lambda: 2, "md5")
    with pytest.raises(DamagedManifestError, match="line 4: a checksum is missing"):
        Manifest(os.fsencode(tmp_path / "m")).verify()


@given(st.binary(max_size=30))
def test_any_name_survives(name: bytes) -> None:
    text = escape(name)
    assert unescape(text) == name
    assert all(0x20 < byte < 0x7F for byte in text)
    for checksum in (b"", b"\xab" * 20):
        entry = ManifestEntry(name, b"f", DIGEST, 3, -4, 5, checksum)
        assert parse_entry(entry.line()[:-1], 16) == entry


@pytest.mark.parametrize("text", [b"%", b"%4", b"%41", b"%0a", b"a b", b"\xff", b"%zz"])
def test_wrong_escapes_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="escaped"):
        unescape(text)
