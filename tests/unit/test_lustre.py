"""The bytes of Lustre layouts: parsed, composed, refused, and requested for new files.

The vectors are written by hand from the structures lov_user_md_v1, lov_user_md_v3, lov_comp_md_v1
and lov_comp_md_entry_v1 of lustre_user.h, field by field, so they do not depend on the product's
writer. Hypothesis tests add that a composed layout is parsed to the same layout, and that arbitrary
bytes raise nothing but ValueError. Further tests cover values of `--stripe` and the detection of
Lustre mounts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.core.errors import UsageError
from pcircle.fs.attributes.lustre import (
    ALL_STRIPES,
    END_OF_FILE,
    EXTENSION,
    INSTANTIATED,
    PARITY,
    Component,
    Composite,
    Layout,
    Stripes,
    common_stripe_bytes,
    compose,
    fresh,
    is_lustre,
    parse,
    read_layout,
    requested_layout,
)
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.fs.attributes.mounts import type_of
from pcircle.fs.entry_errors import LAYOUT
from pcircle.ops.copy.entry.attributes import UnsupportedLayoutError
from pcircle.ops.copy.tree.destination import DEFAULT, KEEP, demand, read_wish


def hexes(*rows: str) -> bytes:
    """Parse rows of hexadecimal digits, each with an optional comment after a `#`."""
    return b"".join(bytes.fromhex(row.partition("#")[0]) for row in rows)


OBJECTS = hexes(
    "02 00 00 00 00 00 00 00  00 00 00 00 01 00 00 00  00 00 00 00  05 00 00 00  # on target 5",
    "0d 00 00 00 00 00 00 00  00 00 00 00 01 00 00 00  00 00 00 00  02 00 00 00  # on target 2",
)
PLAIN = hexes(
    "d0 0b d1 0b  # lmm_magic: LOV_USER_MAGIC_V1",
    "01 00 00 00  # lmm_pattern: RAID0",
    "71 02 00 00 00 00 00 00  01 00 40 00 02 00 00 00  # lmm_oi",
    "00 00 40 00  # lmm_stripe_size: 4 MiB",
    "02 00        # lmm_stripe_count",
    "ff ff        # lmm_stripe_offset: any",
)
POOLED = hexes(
    "d0 0b d3 0b  01 00 00 00  # LOV_USER_MAGIC_V3, RAID0",
    "71 02 00 00 00 00 00 00  01 00 40 00 02 00 00 00  # lmm_oi",
    "00 00 10 00  02 00  03 00  # 1 MiB, two stripes, a generation of 3",
    "66 6c 61 73 68 00 00 00  00 00 00 00 00 00 00 00  # lmm_pool_name: flash",
)
WITHOUT_ID = hexes("00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00")
# The first MiB is on the metadata server, followed by four unused stripes of 4 MiB.
PROGRESSIVE = hexes(
    "d0 0b d6 0b  c0 00 00 00  # lcm_magic: LOV_USER_MAGIC_COMP_V1, lcm_size: 192",
    "07 00 00 00               # lcm_layout_gen",
    "00 00  02 00  00 00       # lcm_flags, lcm_entry_count, lcm_mirror_count",
    "00  00  00 00 00 00  00 00 00 00 00 00 00 00  # lcm_ec_count, padding",
    "01 00 00 00  10 00 00 00  # lcme_id, lcme_flags: INIT",
    "00 00 00 00 00 00 00 00  00 00 10 00 00 00 00 00  # lcme_extent: up to 1 MiB",
    "80 00 00 00  20 00 00 00  00 00 00 00  # lcme_offset: 128, lcme_size: 32, generation",
    "00 00 00 00 00 00 00 00  00 00  00 00  # time and id, stripe counts of EC, compression",
    "02 00 00 00  00 00 00 00  # lcme_id, lcme_flags",
    "00 00 10 00 00 00 00 00  ff ff ff ff ff ff ff ff  # from 1 MiB to the end",
    "a0 00 00 00  20 00 00 00  00 00 00 00  # at 160",
    "00 00 00 00 00 00 00 00  00 00  00 00",
    "d0 0b d1 0b  00 01 00 00  # LOV_PATTERN_MDT",
    "71 02 00 00 00 00 00 00  01 00 40 00 02 00 00 00",
    "00 00 10 00  01 00  ff ff  # its size; Lustre shows one stripe",
    "d0 0b d1 0b  01 00 00 00",
    "71 02 00 00 00 00 00 00  01 00 40 00 02 00 00 00",
    "00 00 40 00  04 00  ff ff",
)
# The request for the same layout: no ids, flags, generation or stripes of the server.
PROGRESSIVE_WISH = hexes(
    "d0 0b d6 0b  c0 00 00 00  00 00 00 00  00 00 02 00 00 00  00 00 00 00 00 00",
    "00 00 00 00 00 00 00 00",
    "00 00 00 00  00 00 00 00  00 00 00 00 00 00 00 00  00 00 10 00 00 00 00 00",
    "80 00 00 00  20 00 00 00  00 00 00 00  00 00 00 00 00 00 00 00  00 00  00 00",
    "00 00 00 00  00 00 00 00  00 00 10 00 00 00 00 00  ff ff ff ff ff ff ff ff",
    "a0 00 00 00  20 00 00 00  00 00 00 00  00 00 00 00 00 00 00 00  00 00  00 00",
    "d0 0b d1 0b  00 01 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00",
    "00 00 10 00  00 00  ff ff",
    "d0 0b d1 0b  01 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00",
    "00 00 40 00  04 00  ff ff",
)
BIG_ENDIAN = hexes(
    "0b d1 0b d0  00 00 00 01  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00",
    "00 40 00 00  00 02  ff ff",
)
FOREIGN = hexes("d0 0b d7 0b  04 00 00 00  05 da 00 00  00 00 00 00  2f 61 2f 62")
MIB = 1 << 20

little_only = pytest.mark.skipif(sys.byteorder != "little", reason="the vectors are little-endian")


def test_plain_layouts_are_read() -> None:
    assert parse(PLAIN) == Stripes(1, 4 * MIB, 2)
    assert parse(PLAIN + OBJECTS) == Stripes(1, 4 * MIB, 2, targets=(5, 2))
    assert parse(POOLED) == Stripes(1, MIB, 2, b"flash", first=3)
    assert parse(POOLED + OBJECTS) == Stripes(1, MIB, 2, b"flash", 3, (5, 2))
    assert parse(BIG_ENDIAN) == Stripes(1, 4 * MIB, 2)


def test_a_composite_layout_is_read() -> None:
    assert parse(PROGRESSIVE) == Composite(
        (
            Component(0, MIB, Stripes(0x100, MIB, 1), INSTANTIATED, 1),
            Component(MIB, END_OF_FILE, Stripes(1, 4 * MIB, 4), 0, 2),
        )
    )


def test_layouts_are_written() -> None:
    plain = PLAIN[:8] + WITHOUT_ID + PLAIN[24:]
    pooled = POOLED[:8] + WITHOUT_ID + POOLED[24:]
    assert compose(Stripes(1, 4 * MIB, 2), "little") == plain
    assert compose(Stripes(1, 4 * MIB, 2), "big") == BIG_ENDIAN
    assert compose(Stripes(1, MIB, 2, b"flash", 3), "little") == pooled
    assert compose(fresh(parse(PROGRESSIVE)), "little") == PROGRESSIVE_WISH


@little_only
def test_a_request_has_no_objects_targets_or_generations() -> None:
    plain = PLAIN[:8] + WITHOUT_ID + PLAIN[24:]
    assert requested_layout(PLAIN + OBJECTS) == plain
    assert requested_layout(POOLED + OBJECTS) == compose(Stripes(1, MIB, 2, b"flash"))
    assert requested_layout(PROGRESSIVE) == PROGRESSIVE_WISH
    assert requested_layout(PROGRESSIVE_WISH) == PROGRESSIVE_WISH
    # Layouts of either byte order are requested in that of the machine.
    assert requested_layout(BIG_ENDIAN) == plain


@little_only
def test_a_list_of_targets_becomes_any() -> None:
    specific = hexes("d0 0b d5 0b") + POOLED[4:32] + bytes(16) + OBJECTS
    assert parse(specific) == Stripes(1, MIB, 2, b"", 3, (5, 2))
    assert requested_layout(specific) == compose(Stripes(1, MIB, 2))


def test_a_copy_of_an_archived_file_is_not_archived() -> None:
    released = Stripes(0x80000001, 4 * MIB, 2)
    assert fresh(released) == Stripes(1, 4 * MIB, 2)
    assert fresh(Stripes(0x40000201, MIB, 12)) == Stripes(0x201, MIB, 12)


def test_the_first_mirror_in_lustre_is_used() -> None:
    whole = Component(0, END_OF_FILE, Stripes(1, MIB, 3), 0x11, 0x10001)
    parts = (
        Component(0, 8 * MIB, Stripes(1, MIB, 1), 0x13, 0x20001),
        Component(8 * MIB, END_OF_FILE, Stripes(1, 8 * MIB, 9), 0x12, 0x20002),
    )
    component = Component(0, END_OF_FILE, Stripes(1, MIB, 3))
    assert fresh(Composite((whole, *parts), 2, 2)) == Composite((component,))
    first = Component(0, END_OF_FILE, None), Component(0, END_OF_FILE, Stripes(), PARITY)
    kept_parts = (
        Component(0, 8 * MIB, Stripes(1, MIB, 1)),
        Component(8 * MIB, END_OF_FILE, Stripes(1, 8 * MIB, 9)),
    )
    assert fresh(Composite((*first, *parts), 0, 3)) == Composite(kept_parts)
    with pytest.raises(ValueError, match="no mirror that is stored in Lustre"):
        fresh(Composite(first, 0, 2))


def test_an_extension_is_preserved() -> None:
    extension = Component(64 * MIB, END_OF_FILE, Stripes(1, 65536, 0), EXTENSION, 2)
    layout = Composite((Component(0, 64 * MIB, Stripes(1, MIB, 2), INSTANTIATED, 1), extension))
    made = fresh(layout)
    assert isinstance(made, Composite)
    assert [part.flags for part in made.components] == [0, EXTENSION]
    # The size of its extensions is not a stripe size.
    assert common_stripe_bytes(layout) == MIB


def test_unavailable_layouts_are_named() -> None:
    with pytest.raises(ValueError, match="not stored in Lustre"):
        parse(FOREIGN)
    with pytest.raises(ValueError, match="unknown pattern 0x100"):
        fresh(Stripes(0x100, MIB))  # DoM is only for components
    with pytest.raises(ValueError, match="unknown pattern 0x2"):
        fresh(Stripes(2, MIB, 1))
    with pytest.raises(ValueError, match="not stored in Lustre"):
        compose(Composite((Component(0, END_OF_FILE, None),)))
    with pytest.raises(ValueError, match="fewer than 16 bytes"):
        compose(Stripes(pool=b"a name too long."))


def changed(value: bytes, offset: int, to: bytes) -> bytes:
    """Return the same bytes with other ones at one place."""
    return value[:offset] + to + value[offset + len(to) :]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin"),
        (b"\xd0\x0b\xd2\x0b" + PLAIN[4:], "does not begin"),
        (PLAIN[:-1], "truncated"),
        (POOLED[:-1], "truncated"),
        (changed(POOLED, 32, b"x" * 16), "not terminated"),
        (PLAIN + OBJECTS * 1001, "2002 objects"),
        (PROGRESSIVE[:31], "truncated"),
        (PROGRESSIVE[:-1], "do not fit"),
        (changed(PROGRESSIVE, 4, b"\xff\xff\xff\xff"), "do not fit"),
        (changed(PROGRESSIVE, 14, b"\0\0"), "do not fit"),
        (changed(PROGRESSIVE, 14, b"\xff\xff"), "do not fit"),
        (changed(PROGRESSIVE, 56, b"\x04\0\0\0"), "lies outside"),
        (changed(PROGRESSIVE, 56, b"\xff\xff\xff\xff"), "lies outside"),
        (changed(PROGRESSIVE, 60, b"\xff\xff\xff\xff"), "lies outside"),
        (changed(PROGRESSIVE, 60, b"\x30\0\0\0"), "lies outside"),  # one within the other
        (changed(PROGRESSIVE, 60, b"\x10\0\0\0"), "truncated"),
        (changed(PROGRESSIVE, 60, b"\0\0\0\0"), "truncated"),
        (changed(PROGRESSIVE, 40, (2 * MIB).to_bytes(8, "little")), "ends before it begins"),
        (changed(PROGRESSIVE, 128, b"\xd0\x0b\xd6\x0b"), "cannot begin with 0xbd60bd0"),
    ],
)
def test_hostile_layouts_are_refused(value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(value)


numbers = st.integers(0, 0xFFFF)
plain_layouts = st.builds(
    Stripes,
    st.sampled_from([0, 1, 0x100, 0x201, 0x801, 0x80000001]),
    st.integers(0, (1 << 32) - 1),
    numbers,
    st.binary(max_size=15).map(lambda name: name.replace(b"\0", b"")),
    numbers,
    st.lists(st.integers(0, (1 << 32) - 1), max_size=9).map(tuple),
)
extents = st.tuples(*[st.integers(0, END_OF_FILE)] * 2).map(sorted)
components = st.builds(
    lambda extent, *rest: Component(*extent, *rest),
    extents,
    plain_layouts,
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    st.binary(min_size=2, max_size=2),
)
composites = st.builds(
    Composite, st.lists(components, min_size=1, max_size=5).map(tuple), numbers, st.integers(1, 9)
)
layouts = plain_layouts | composites


@given(layouts, st.sampled_from(["little", "big"]))
def test_composed_layouts_are_parsed_back(layout: Layout, byteorder: str) -> None:
    assert parse(compose(layout, byteorder)) == layout


@given(layouts)
def test_a_request_equals_its_own_request(layout: Layout) -> None:
    try:
        wish = fresh(layout)
    except ValueError:
        return
    assert fresh(wish) == wish
    assert parse(compose(wish)) == wish


@given(layouts, st.data())
def test_damage_is_a_value_error_or_another_layout(layout: Layout, data: st.DataObject) -> None:
    value = bytearray(compose(layout, "little"))
    for offset in data.draw(st.lists(st.integers(0, len(value) - 1), max_size=4)):
        value[offset] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    for damaged in (bytes(value), cut):
        try:
            found = parse(damaged)
            common_stripe_bytes(found)
            compose(fresh(found))
        except ValueError:
            continue


magics = st.sampled_from([PLAIN[:4], POOLED[:4], PROGRESSIVE[:4], FOREIGN[:4], BIG_ENDIAN[:4]])


@given(magics, st.binary(max_size=300))
def test_invalid_bytes_raise_only_value_errors(magic: bytes, body: bytes) -> None:
    try:
        found = parse(magic + body)
    except ValueError:
        return
    # A plain header has 32 bytes, so all fields that were parsed exist.
    assert len(body) >= 28
    assert isinstance(found, Stripes) or all(part.start <= part.end for part in found.components)


def test_the_size_that_chunks_are_aligned_to() -> None:
    assert common_stripe_bytes(parse(PLAIN)) == 4 * MIB
    assert common_stripe_bytes(parse(PROGRESSIVE)) == 4 * MIB
    assert common_stripe_bytes(Stripes()) == 0
    mixed = tuple(Component(0, 1, Stripes(1, size)) for size in (6 * MIB, 4 * MIB, 0))
    assert common_stripe_bytes(Composite(mixed)) == 12 * MIB


MOUNTS = b"""\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
98 21 0:52 /sub /mnt/a\\040-\\040b rw,relatime shared:44 master:2 - lustre 10.0.0.1@tcp:/lfs rw
99 21 0:53 / /home rw - fuse.sshfs host: rw
100 21 0:54 / /cut
"""


def test_the_type_of_a_mount() -> None:
    assert type_of(MOUNTS, os.makedev(8, 1)) == b"ext4"
    assert type_of(MOUNTS, os.makedev(0, 52)) == b"lustre"
    assert type_of(MOUNTS, os.makedev(0, 53)) == b"fuse.sshfs"
    assert type_of(MOUNTS, os.makedev(0, 54)) is None
    assert type_of(MOUNTS, os.makedev(0, 55)) is None
    # Use the entry of this machine for /proc.
    own = Path("/proc/self/mountinfo").read_bytes()
    assert type_of(own, os.stat("/proc").st_dev) == b"proc"


def test_other_file_systems_are_not_lustre(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path)
    assert not is_lustre(path)
    assert not is_lustre(b"/proc")
    assert not is_lustre(path + b"/missing")
    assert read_layout(path) is None
    with pytest.raises(FileNotFoundError):
        read_layout(path + b"/missing")


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("keep", KEEP),
        ("default", DEFAULT),
        ("4", Stripes(count=4)),
        ("0:1M", Stripes(stripe_bytes=MIB)),
        ("all", Stripes(count=ALL_STRIPES)),
        ("-1:16MiB", Stripes(count=ALL_STRIPES, stripe_bytes=16 * MIB)),
        ("2000:64k", Stripes(count=2000, stripe_bytes=65536)),
    ],
)
def test_valid_values_of_stripe(text: str, wish: str | Stripes) -> None:
    assert read_wish(text) == wish


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not keep, default, COUNT or COUNT:SIZE"),
        ("kept", "is not keep, default, COUNT or COUNT:SIZE"),
        ("2001", "is not keep, default, COUNT or COUNT:SIZE"),
        ("-2", "is not keep, default, COUNT or COUNT:SIZE"),
        ("\u0664", "is not keep, default, COUNT or COUNT:SIZE"),
        ("1" * 5000, "is not keep, default, COUNT or COUNT:SIZE"),
        (":1M", "is not keep, default, COUNT or COUNT:SIZE"),
        ("keep:1M", "is not keep, default, COUNT or COUNT:SIZE"),
        ("4:", "invalid size"),
        ("4:1Q", "invalid size"),
        ("4:0", "not a multiple of 64k"),
        ("4:100k", "not a multiple of 64k"),
        ("4:4G", "not a multiple of 64k below 4G"),
    ],
)
def test_invalid_values_of_stripe(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_wish(text)


def test_stripe_takes_precedence_without_contradictions() -> None:
    everything, named = (
        PreservedAttributes(stripe=True),
        PreservedAttributes(stripe=True, stripe_demanded=True),
    )
    assert demand(None, everything) == everything
    assert demand("keep", PreservedAttributes()) == named
    assert demand("default", everything) == PreservedAttributes()
    assert demand("4", everything) == PreservedAttributes(stripe_demanded=True)
    assert demand("keep", named) == named
    with pytest.raises(UsageError, match=r"--stripe=.* cannot be combined with --preserve=stripe"):
        demand("default", named)


def test_error_names_why_a_layout_cannot_be_kept() -> None:
    error = UnsupportedLayoutError(ValueError("it is composite"))
    assert error.kind == LAYOUT
    assert str(error.strerror).endswith("it is composite")
