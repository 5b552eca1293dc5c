"""The dataset signature matches the specification's vectors and a plain reference.

The reference is `tests.signed`: one thread, whole files in memory, written from docs/signature.rst
without any code of the package.
"""

from __future__ import annotations

import hashlib
import os
import struct
import textwrap
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pcircle.ops.digest import (
    BLOCK_BYTES,
    BlockHasher,
    Runs,
    RunStore,
    file_digest,
    format_signature,
    get_algorithm,
    pack_entry,
    parse_signature,
)
from tests.conftest import ROOT
from tests.signed import ALGORITHMS, digest_of, signature_of

VECTORS = {
    "a.txt": (
        "063357736cdc1367f213054e5f38719e",
        "009f86b9b6a408695515b16d186bc94cc7f3806d148ee4a36262705f0f4c9a2c",
    ),
    "zero": (
        "ef2dddbcb1516abf809edf87e5f0f6f7",
        "3433df18b4454577e7e71fb7af9fd8eff8add7c22c8e6e5494f14fca789adf01",
    ),
    "link": (
        "10bfd80f87a7122c6f7905531e1d70cb",
        "a7e44f0abcb34db8e5ba52024924bc56c34f0df06adeb8e526378867097955e2",
    ),
    "empty": (
        "6bc3f5d5e242de9b29cbec71d1af7990",
        "f4a3c86e12b3a956cb7574e2867ce000a11addc4e5111a3dec2b919b40ece33a",
    ),
    "pipe": (
        "78a532f7e4121ee3d11b76eefe9008ca",
        "3c9d543525ea1d4a32a5fbe506cac46ad6b4bd8a1a0429a8fb9cb3cdcd4bc1ec",
    ),
    "sub/big.bin": (
        "eb0dac5ff469f5ddc4323d6c7f34212a",
        "8ccbe4d6a733e84e4f3580c7e4a8c49a8b7df6780253b1998c2d69a3136c44f2",
    ),
    "sub": (
        "98ddf7ed682e4a51f8af35ca9363108c",
        "20a11e659b82aaa7a316466e7d5d2e4803cc5e3310aa53954715fe3d8aba75ca",
    ),
    "": (
        "480135662d079012bab538599e42d0c9",
        "5e203d657db7d8730eedbb24cd3a11d07a4f4305451a1df49f2094625fb66be3",
    ),
}


def make_vectors(top: Path) -> bytes:
    """Create the specification's tree `t`; return its path."""
    root = top / "t"
    (root / "empty").mkdir(parents=True)
    (root / "sub").mkdir()
    (root / "a.txt").write_bytes(b"hello\n")
    (root / "zero").touch()
    (root / "link").symlink_to("a.txt")
    os.mkfifo(root / "pipe")
    (root / "sub" / "big.bin").write_bytes((bytes(range(256)) * 19532)[:5_000_000])
    with open(os.fsencode(root) + b"/sub/\xff\xfe", "wb") as stream:
        stream.write(b"non-utf8 name")
    return os.fsencode(root)


def test_the_reference_meets_the_vectors(tmp_path: Path) -> None:
    root = make_vectors(tmp_path)
    for path, wanted in VECTORS.items():
        found = [digest_of(os.path.join(root, path.encode()), name)[1].hex() for name in ALGORITHMS]
        assert tuple(found[:2]) == wanted, path


@pytest.mark.parametrize("name", ["xxh128", "sha256", "sha512", "blake2b"])
def test_algorithms_are_those_of_their_libraries(name: str) -> None:
    known = xxhash.xxh3_128 if name == "xxh128" else getattr(hashlib, name)
    found = get_algorithm(name)
    hasher = found.new()
    hasher.update(b"some")
    hasher.update(b"thing")
    assert hasher.digest() == found.digest(b"something") == known(b"something").digest()
    assert found.size == len(found.digest(b""))


def test_unknown_algorithms_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown algorithm '.*'; choose from xxh128"):
        get_algorithm("md4")


piece = st.tuples(st.integers(0, 9 << 20), st.integers(1, 3 << 20))


@given(st.lists(piece, max_size=5), st.integers(0, 1 << 20))
def test_blocks_do_not_depend_on_pieces_and_holes(pieces: list[tuple[int, int]], tail: int) -> None:
    found = get_algorithm("xxh128")
    hasher = BlockHasher(found)
    hasher.begin(0)
    whole = bytearray()
    for number, (gap, length) in enumerate(pieces, 1):
        whole += bytes(gap)
        data = bytes([number]) * length
        hasher.add(len(whole), data)
        whole += data
    whole += bytes(tail)
    blocks = [whole[at : at + BLOCK_BYTES] for at in range(0, len(whole), BLOCK_BYTES)]
    digests = b"".join(found.digest(bytes(block)) for block in blocks)
    assert hasher.end(len(whole)) == digests
    size = struct.pack(">Q", len(whole))
    wanted = xxhash.xxh3_128(b"file\0" + size + digests).digest()
    assert file_digest(found, len(whole), digests) == wanted


@given(
    st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(min_size=16, max_size=16)),
    st.integers(1, 500),
    st.randoms(use_true_random=False),
)
def test_runs_give_one_digest_in_any_order_and_from_the_shelf(
    entries: dict[bytes, bytes], lot: int, random: object
) -> None:
    packed = [pack_entry(name, b"f", digest) for name, digest in entries.items()]
    random.shuffle(packed)  # type: ignore[attr-defined]
    stream = b"".join(pack_entry(name, b"f", entries[name]) for name in sorted(entries))
    wanted = xxhash.xxh3_128(b"dir\0" + stream + struct.pack(">Q", len(entries))).digest()
    for max_memory_bytes in (lot, 1 << 20):
        shelf = RunStore(get_algorithm("xxh128"), max_memory_bytes)
        runs = Runs()
        for one in packed:
            runs = shelf.add(runs, Runs((one,)))
        assert shelf.digest(runs) == (wanted, len(entries))
        shelf.close()


def test_a_repeated_name_is_refused() -> None:
    entry = pack_entry(b"a", b"f", bytes(16))
    with pytest.raises(ValueError, match="twice"):
        RunStore(get_algorithm("xxh128")).digest(Runs((entry, entry)))


def test_text_is_parsed_and_damage_refused(tmp_path: Path) -> None:
    root = make_vectors(tmp_path)
    text = signature_of(root)
    parsed = parse_signature(text)
    assert format_signature(get_algorithm(parsed.algorithm), parsed.digest) == text
    for wrong in (text[:-2], text.replace("pcsig1", "pcsig2"), text.upper(), text + "\n"):
        with pytest.raises(ValueError, match=r"(?i)pcsig"):
            parse_signature(wrong)


def test_the_manuals_example_meets_the_vectors(tmp_path: Path) -> None:
    """The example in docs/signature.rst supports neither FIFOs nor other special files."""
    text = (ROOT / "docs" / "signature.rst").read_text()
    example = text.partition(".. code-block:: python")[2].partition("Vectors")[0]
    program = textwrap.dedent(example.rpartition("print(")[0])
    names: dict[str, Any] = {}
    exec(compile(program, "signature.rst", "exec"), names)
    root = make_vectors(tmp_path)
    for path, (wanted, _) in VECTORS.items():
        assert wanted in text
        if path not in ("", "pipe"):
            assert names["digest"](os.path.join(root, path.encode()))[1:].hex() == wanted
