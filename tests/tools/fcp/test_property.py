"""A property: the copy of any small tree by two workers is equal to it.

Hypothesis generates the trees (names of any bytes, contents around holes and boundaries, links,
modes, times) and shrinks failing ones. There are few examples, because each needs a process or two;
they are the same in every run, so that a run never fails by chance.
"""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .judge import METADATA, differences
from .running import Launcher, copy
from .trees import remove_tree

Node = tuple[str, object, int, int]

names = st.binary(min_size=1, max_size=40).map(
    lambda raw: raw.replace(b"/", b"\\").replace(b"\0", b"0")
)
usable_names = names.filter(lambda name: name not in (b".", b".."))
modes = st.sampled_from([0o600, 0o644, 0o755, 0o400, 0o777])
times_ns = st.integers(min_value=-(2**31) * 10**9, max_value=2**33 * 10**9)
contents = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda size, byte: bytes([byte]) * size,
        st.sampled_from([4095, 4096, 4097, 70_000, 4 << 20, (4 << 20) + 1]),
        st.integers(0, 255),
    ),
)
targets = st.binary(min_size=1, max_size=60).map(lambda raw: raw.replace(b"\0", b"0"))
files = st.tuples(st.just("file"), contents, modes, times_ns)
links = st.tuples(st.just("link"), targets, modes, times_ns)


def _directories(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    entries = st.dictionaries(usable_names, children, max_size=6)
    return st.tuples(st.just("directory"), entries, modes.map(lambda m: m | 0o500), times_ns)


trees = _directories(st.recursive(st.one_of(files, links), _directories, max_leaves=20))


def _build(path: bytes, node: Node) -> None:
    kind, value, mode, time_ns = node
    if kind == "link":
        assert isinstance(value, bytes)
        os.symlink(value, path)
    elif kind == "file":
        assert isinstance(value, bytes)
        with open(path, "xb") as stream:
            stream.write(value)
    else:
        assert isinstance(value, dict)
        os.mkdir(path)
        for name, child in value.items():
            _build(os.path.join(path, name), child)
    if kind != "link":
        os.chmod(path, mode)
    os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(tree=trees)
def test_copy_of_any_tree_is_equal(place: bytes, tree: Node) -> None:
    inner = tempfile.mkdtemp(dir=place)
    try:
        source, target = inner + b"/source", inner + b"/target"
        _build(source, tree)
        copy(Launcher(jobs=2), "-p", source, target)
        assert differences(source, target, METADATA) == []
    finally:
        remove_tree(inner)
