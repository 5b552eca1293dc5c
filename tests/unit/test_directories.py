"""Leased directory descriptors refer to the right directory for the whole lease.

The property test keeps fewer descriptors than it uses at once, leases and releases in random order,
and queries the kernel each time for the directory of a descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import resource
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.fs.directories import (
    HOLDER,
    Directories,
    Lease,
    RootPath,
    affordable,
    affordable_threads,
    capacity_of,
    join_path,
)
from pcircle.fs.entry_errors import CHANGED, kind_of
from tests.conftest import Run
from tests.unit.unprivileged import run_unprivileged

# A tree whose paths share ancestors; one of the names is not valid text.
PATHS = [b"", b"a", b"a/b", b"a/b/c", b"a/b/c/d", b"a/x", b"a/x/\xff", b"e", b"e/f", b"e/f/g"]


def identity(path: bytes) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def stands_for(lease: Lease) -> tuple[int, int]:
    """Return the current path of the lease's descriptor, according to the kernel."""
    status = os.fstat(lease.fd)
    return status.st_dev, status.st_ino


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def without_leaks() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def make_tree(root: bytes) -> dict[bytes, tuple[int, int]]:
    """Create the tree of `PATHS` and return the identity of each directory."""
    for path in PATHS:
        os.makedirs(os.path.join(root, path), exist_ok=True)
    return {path: identity(os.path.join(root, path)) for path in PATHS}


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    root = os.fsencode(tmp_path / "root")
    make_tree(root)
    return root


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    root = os.fsencode(tmp_path_factory.mktemp("shared"))
    return root, make_tree(root)


steps = st.lists(
    st.one_of(
        st.sampled_from(PATHS),
        st.integers(0, 30),
        st.just(b"a/missing/below"),
        st.tuples(st.sampled_from(["below", "keep"]), st.integers(0, 30)),
    ),
    max_size=60,
)


def below(path: bytes, number: int) -> bytes:
    """Return the name of an entry of the directory, or "missing" if the directory has none."""
    names = [one.rpartition(b"/") for one in PATHS if one]
    inside = [name for above, _, name in names if above == path]
    return inside[number % len(inside)] if inside else b"missing"


@given(steps=steps, capacity=st.integers(1, 4), closes_early=st.booleans())
def test_a_lease_is_its_directory_until_it_ends(
    shared: tuple[bytes, dict[bytes, tuple[int, int]]],
    steps: list[bytes | int | tuple[str, int]],
    capacity: int,
    closes_early: bool,
) -> None:
    root, identities = shared
    with without_leaks():
        directories = Directories([RootPath(root, b"")], capacity)
        held: list[tuple[bytes, Lease]] = []
        for step in steps:
            if isinstance(step, bytes) and step in identities:
                lease = directories.lease(0, step, identities[step])
                assert lease.identity == identities[step]
                held.append((step, lease))
            elif isinstance(step, bytes):
                with pytest.raises(FileNotFoundError):
                    directories.lease(0, step)
            elif held and isinstance(step, int):
                held.pop(step % len(held))[1].__exit__(None, None, None)
            elif held and isinstance(step, tuple):
                path, lease = held[step[1] % len(held)]
                name = below(path, step[1])
                if step[0] == "keep":
                    directories.keep(lease, 0, path)
                elif name == b"missing":
                    with pytest.raises(FileNotFoundError):
                        directories.lease_below(lease, name)
                else:
                    held.append((join_path(path, name), directories.lease_below(lease, name)))
            for path, lease in held:
                assert stands_for(lease) == identities[path]
        if closes_early:
            directories.close()
        while held:
            path, lease = held.pop()
            assert stands_for(lease) == identities[path]
            lease.__exit__(None, None, None)
        directories.close()


def test_the_capacity_limits_open_descriptors(root: bytes) -> None:
    before = len(open_descriptors())
    directories = Directories([RootPath(root, b"")], 2)
    for path in PATHS:
        with directories.lease(0, path):
            pass
        assert len(open_descriptors()) <= before + 2
    directories.close()


def test_closed_directories_may_be_used_again(root: bytes) -> None:
    """Each item of a mirror closes the directories of the source; the next item opens them."""
    before = open_descriptors()
    directories = Directories([RootPath(root, b"")], 2)
    for _ in range(2):
        for path in PATHS:
            with directories.lease(0, path):
                pass
        directories.close()
        assert open_descriptors() == before


def test_closed_directories_are_released(root: bytes) -> None:
    """A program that calls a tool many times must not keep the task of every call."""
    directories = Directories([RootPath(root, b"")], 8)
    with directories.lease(0, b""):
        pass
    released = weakref.ref(directories)
    directories.close()
    del directories
    gc.collect()
    assert released() is None


def test_a_lease_is_shared_and_evicted_only_after_its_last_use(root: bytes) -> None:
    directories = Directories([RootPath(root, b"")], 1)
    with directories.lease(0, b"a") as first:
        with directories.lease(0, b"a") as second:
            assert first.fd == second.fd
            with directories.lease(0, b"e/f"):
                pass
        # The number is still in use, so it cannot have been reused.
        assert stands_for(first) == identity(root + b"/a")
        with directories.lease(0, b"a") as anew:
            assert anew.fd != first.fd
            assert anew.identity == first.identity
    directories.close()


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_a_root_is_cached_under_one_name(root: bytes, capacity: int) -> None:
    """With two names, eviction under one would close the root, while the other still returns it."""
    with without_leaks():
        directories = Directories([RootPath(root, b"")], capacity)
        for path in (b"", b"a", b"", b"e", b"a/b", b"", b"a/x", b""):
            with directories.lease(0, path) as lease:
                assert stands_for(lease) == identity(os.path.join(root, path))
                directories.keep(lease, 0, path)
        directories.close()


def test_nested_leases_are_open_only_for_their_duration(root: bytes) -> None:
    before = len(open_descriptors())
    directories = Directories([RootPath(root, b"")], 9)
    with directories.lease(0, b"") as above:
        with directories.lease_below(above, b"a") as lease:
            assert stands_for(lease) == identity(root + b"/a")
        assert len(open_descriptors()) == before + 1
        with directories.lease_below(above, b"e") as lease:
            directories.keep(lease, 0, b"e")
    with directories.lease(0, b"e") as again:
        assert again.fd == lease.fd
    directories.close()


LEVELS = 200


@pytest.mark.parametrize("capacity", [1, 4, 32])
def test_a_deep_tree_is_left_level_by_level(root: bytes, capacity: int) -> None:
    paths = [b"/".join([b"d"] * depth) for depth in range(LEVELS + 1)]
    os.makedirs(os.path.join(root, paths[-1]))
    identities = [identity(os.path.join(root, path)) for path in paths]
    opened: list[int] = []
    directories = Directories(
        [RootPath(root, b"")], capacity, opened=lambda fd, _: opened.append(fd)
    )
    for path, known in reversed(list(zip(paths, identities, strict=True))):
        with directories.lease(0, path, known) as lease:
            assert stands_for(lease) == known
    assert len(opened) <= 2 * LEVELS + 4  # from the top down each time: 20,000
    directories.close()


def test_a_moved_child_does_not_lead_to_its_old_parent(root: bytes) -> None:
    above = identity(root + b"/a")
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 1)
        with directories.lease(0, b"a/b"):
            os.rename(root + b"/a/b", root + b"/e/b")
        with directories.lease(0, b"a", above) as lease:
            assert stands_for(lease) == above
        directories.close()


def test_a_lease_ends_with_an_exception(root: bytes) -> None:
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 1)
        with pytest.raises(KeyError), directories.lease(0, b"a"):
            raise KeyError
        directories.close()


def test_threads_may_share_the_directories(root: bytes) -> None:
    identities = {path: identity(os.path.join(root, path)) for path in PATHS}
    directories = Directories([RootPath(root, b"")], 2)
    wrong: list[str] = []

    def use(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(300):
                path, other = rng.choice(PATHS), rng.choice(PATHS)
                with directories.lease(0, path) as one, directories.lease(0, other) as two:
                    assert stands_for(one) == identities[path]
                    assert stands_for(two) == identities[other]
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    directories.close()
    assert wrong == []


# ---- identity of directories ---------------------------------------------------------


def test_a_root_is_a_name_in_its_holder_or_the_holder_itself(root: bytes) -> None:
    bases = [RootPath(root, b""), RootPath(root, b"a")]
    directories = Directories(bases, 8)
    for number, path, expected in [
        (0, b"", root),
        (0, HOLDER, root),
        (1, HOLDER, root),
        (1, b"", root + b"/a"),
        (1, b"b/c", root + b"/a/b/c"),
    ]:
        with directories.lease(number, path) as lease:
            assert stands_for(lease) == identity(expected)
    directories.close()


def test_another_directory_under_the_same_name_is_stale(root: bytes) -> None:
    before = identity(root + b"/a/b")
    os.rename(root + b"/a/b", root + b"/old")
    os.mkdir(root + b"/a/b")
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 1)
        with pytest.raises(OSError, match="replaced") as caught:
            directories.lease(0, b"a/b", before)
        assert (caught.value.errno, kind_of(caught.value)) == (None, CHANGED)
        with directories.lease(0, b"a/b", identity(root + b"/a/b")):
            pass
        directories.close()


def test_an_open_directory_survives_a_rename(root: bytes) -> None:
    directories = Directories([RootPath(root, b"")], 8)
    before = identity(root + b"/a/b")
    with directories.lease(0, b"a/b"):
        os.rename(root + b"/a/b", root + b"/old")
        os.mkdir(root + b"/a/b")
        with directories.lease(0, b"a/b", before) as lease:
            assert stands_for(lease) == before == identity(root + b"/old")
    directories.close()


@pytest.mark.parametrize("path", [b"link", b"link/f", b"a/link", b"a/link/f"])
def test_a_symbolic_link_is_never_followed(root: bytes, path: bytes) -> None:
    os.symlink(root + b"/e", root + b"/link")
    os.symlink(b"../e", root + b"/a/link")
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 1)
        with pytest.raises(OSError, match=r".") as caught:
            directories.lease(0, path)
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
        directories.close()


def test_a_link_that_takes_a_directorys_place_is_not_followed(root: bytes) -> None:
    directories = Directories([RootPath(root, b"")], 1)
    with directories.lease(0, b"a/b"):
        pass
    with directories.lease(0, b"e"):
        pass  # evicts the previous one
    os.rename(root + b"/a", root + b"/away")
    os.symlink(root + b"/away", root + b"/a")
    with pytest.raises(OSError, match=r".") as caught:
        directories.lease(0, b"a/b")
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    directories.close()


def test_the_holder_may_be_a_link_but_the_root_in_it_may_not(root: bytes) -> None:
    os.symlink(root + b"/a", root + b"/link")
    directories = Directories([RootPath(root + b"/link", b"b"), RootPath(root, b"link")], 8)
    with directories.lease(0, b"") as lease:
        assert stands_for(lease) == identity(root + b"/a/b")
    with pytest.raises(OSError, match=r".") as caught:
        directories.lease(1, b"")
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    directories.close()


# ---- unreachable directories ---------------------------------------------------------


def test_a_failure_in_the_middle_of_a_descent_leaves_nothing_leased(root: bytes) -> None:
    with open(root + b"/a/file", "wb"):
        pass
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 2)
        for _ in range(20):
            with pytest.raises(FileNotFoundError):
                directories.lease(0, b"a/b/missing/c")
            with pytest.raises(NotADirectoryError):
                directories.lease(0, b"a/file/c")
        directories.close()


def test_a_root_that_is_missing_leaves_nothing_leased(root: bytes) -> None:
    bases = [RootPath(root, b"missing"), RootPath(root + b"/missing", b"")]
    with without_leaks():
        directories = Directories(bases, 2)
        for number in range(2):
            with pytest.raises(FileNotFoundError):
                directories.lease(number, b"a")
        directories.close()


def test_when_descriptors_run_out_it_is_an_oserror(root: bytes) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with without_leaks():
        directories = Directories([RootPath(root, b"")], 8)
        with directories.lease(0, b"a"):
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, hard))
            try:
                with directories.lease(0, b"a/b"), directories.lease(0, b"a/x"):
                    for _ in range(3):
                        with pytest.raises(OSError, match="Too many"):
                            directories.lease(0, b"e/f/g")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        directories.close()


def test_a_path_beyond_path_max(tmp_path: Path) -> None:
    names = [b"%03d" % number + b"d" * 240 for number in range(30)]
    above = os.open(tmp_path, os.O_RDONLY)
    try:
        for name in names:
            os.mkdir(name, dir_fd=above)
            below = os.open(name, os.O_RDONLY, dir_fd=above)
            os.close(above)
            above = below
        status = os.fstat(above)
    finally:
        os.close(above)
    path = b"/".join(names)
    assert len(path) > os.pathconf("/", "PC_PATH_MAX")
    for capacity in (1, 8):
        directories = Directories([RootPath(os.fsencode(tmp_path), b"")], capacity)
        with directories.lease(0, path) as lease:
            assert stands_for(lease) == (status.st_dev, status.st_ino)
        # A sibling is opened from the nearest ancestor that is still open.
        with pytest.raises(FileNotFoundError):
            directories.lease(0, path + b"/missing")
        directories.close()


def test_a_write_only_directory(run: Run, tmp_path: Path) -> None:
    """Users who may not list an upload folder can still copy into it."""
    program = """
os.makedirs("drop/in")
os.chmod("drop/in", 0o300)
os.chmod("drop", 0o300)
closed = directories.Directories([directories.RootPath(b".", b"drop")], 2)
for path in (b"", b"in"):
    with closed.lease(0, path) as lease:
        assert lease.searched
    try:
        closed.lease(0, path, readable=True)
    except PermissionError:
        pass
    else:
        raise AssertionError("opened for reading")
closed.close()
writable = directories.Directories([directories.RootPath(b".", b"drop")], 2)
for path in (b"", b"in"):
    with writable.lease(0, path) as lease:
        os.close(os.open(b"new", target.CREATE_FILE, dir_fd=lease.fd))
        os.chmod(b".", 0o700, dir_fd=lease.fd)
writable.close()
assert os.path.exists("drop/new") and os.path.exists("drop/in/new")
"""
    done = run_unprivileged(run, program, tmp_path)
    assert done.returncode == 0, done.stderr.decode()


# ---- small things ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"), [(4000, 1024), (1000, 468), (256, 96), (80, 8), (66, 4)]
)
def test_descriptors_are_left_for_other_uses(limit: int, expected: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < limit:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        assert affordable() == expected
        for sides in (1, 2):
            per_thread = sides * capacity_of(is_first=False) + 8  # neither a file nor anything else
            needed = sides * capacity_of(is_first=True) + per_thread * (
                affordable_threads(sides) - 1
            )
            assert needed <= 2 * affordable()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_paths_are_joined_below_the_root() -> None:
    assert join_path(b"", b"x") == b"x"
    assert join_path(HOLDER, b"x") == b"x"
    assert join_path(b"a/b", b"\xff") == b"a/b/\xff"


def test_a_base_may_be_relative() -> None:
    """A base is opened by the path that the user specified, relative or absolute."""
    with tempfile.TemporaryDirectory() as folder:
        relative = os.path.relpath(folder).encode()
        directories = Directories([RootPath(relative, b"")], 1)
        with directories.lease(0, b"") as lease:
            assert stands_for(lease) == identity(folder.encode())
        directories.close()


def test_a_removed_directory_is_not_kept(tmp_path: Path) -> None:
    """Neither are removed directories below it kept; a leased one stays open."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    directories = Directories([RootPath(os.fsencode(tmp_path), b"")], 10)
    directories.lease(0, b"a/b").end()
    lease = directories.lease(0, b"a")
    (tmp_path / "a" / "b").rmdir()
    directories.forget(0, b"a/b")
    (tmp_path / "a").rmdir()
    directories.forget(0, b"a")
    assert _removed_descriptors(tmp_path) == [f"{tmp_path}/a (deleted)"]
    lease.end()
    assert _removed_descriptors(tmp_path) == []
    directories.forget(0, b"never there")
    (tmp_path / "a").mkdir()
    with directories.lease(0, b"a") as again:
        assert stands_for(again) == identity(os.fsencode(tmp_path / "a"))
    directories.close()


def _removed_descriptors(place: Path) -> list[str]:
    """Return the descriptors of this process that refer to removed entries below a directory."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(f"{place}/") and path.endswith(" (deleted)")]
