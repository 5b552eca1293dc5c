"""`--chown`, `--chmod`, `--usermap` and `--groupmap` match rsync, and apply to ACLs."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcircle.fs.attributes.acls import (
    ACCESS,
    DEFAULT,
    GROUP,
    MASK,
    NOBODY,
    OTHER,
    OWNER,
    OWNING_GROUP,
    USER,
    entries_of,
    packed,
)
from pcircle.fs.attributes.owners import changed, read_modes
from tests.programs import required
from tests.tools.fcp.running import TWO, Launcher, Run
from tests.tools.fcp.trees import write_file

from .edits import Tree, copy_of
from .running import (
    FMIRROR,
    as_root,
    differences,
    every_launcher,
    mirrored,
    needs_rsync,
    run_fmirror,
    searched,
)
from .test_judge import state

pytestmark = [as_root, needs_rsync]
# rsync would look up names of ids on the other side, so maps use numbers without names.
WAYS: dict[str, tuple[str, ...]] = {
    "owner": ("--numeric-ids", "--chown=4001:4002"),
    "group": ("--numeric-ids", "--chown=:4002"),
    "user": ("--numeric-ids", "--chown=4001"),
    "modes": ("--chmod=Dg+s,ug+w,Fo-w,+X",),
    "numbers": ("--chmod=D2775,F664",),
    "several": ("--chmod=u=rwX,go=rX,F-s,D+t",),
    "numbers of lists": ("--usermap=1:4001,2:4002", "--groupmap=3:4003"),
    "ranges": ("--numeric-ids", "--usermap=1-2:4001,*:4009", "--groupmap=0-2:4002"),
    "names": ("--usermap=bin:4001,daem*:4002", "--groupmap=*s:4002"),
    "all": ("--numeric-ids", "--usermap=1:4001", "--chown=:4002", "--chmod=a-s,Fg=r"),
}


def remaining_changes(way: str, source: bytes, target: bytes) -> list[str]:
    """Return rsync's remaining changes; with --numeric-ids it does not map users in ACLs."""
    lines = differences(source, target, *WAYS[way]).splitlines()
    maps = "--numeric-ids" in WAYS[way] and any("map=" in word for word in WAYS[way])
    return [line for line in lines if not maps or line[2:11] != ".......a."]


@every_launcher
@pytest.mark.parametrize("way", WAYS)
def test_rsync_with_the_same_options_has_nothing_to_do(
    place: bytes, launcher: Launcher, way: str
) -> None:
    """rsync confirms a new target, one after edits, and a repeated run."""
    options = WAYS[way]
    source, target = place + b"/a", place + b"/b"
    tree = Tree(source, 3)
    for _ in range(40):
        tree.edit()
    os.makedirs(source + b"/small/of files")
    for number in range(30):
        path = write_file(source + b"/small/of files/%d" % number, b"content")
        os.chmod(path, 0o600 + number)
        os.chown(path, number % 4, number % 5)
    with open(source + b"/large", "xb") as stream:
        stream.truncate(80 << 20)
        stream.write(b"begin")
    os.chown(source + b"/large", 1, 2)
    for _ in range(3):
        mirrored(launcher, "--delete", *options, source, target)
        assert remaining_changes(way, source, target) == []
        before = state(target)
        mirrored(launcher, "--delete", *options, source, target)
        assert state(target) == before
        for _ in range(6):
            tree.edit()


@searched(25, soak=300)
@given(seed=st.integers(0, 2**40), way=st.sampled_from(sorted(WAYS)))
def test_any_tree(tmp_path_factory: pytest.TempPathFactory, seed: int, way: str) -> None:
    """A target made without or with other options gets the expected state."""
    place = os.fsencode(tmp_path_factory.mktemp("tree"))
    source, target = place + b"/a", place + b"/b"
    tree = Tree(source, seed)
    if seed % 2:
        copy_of(source, target)
        tree.edit()
    words: list[str | bytes] = ["-j1", "--delete", "--allow-empty", *WAYS[way], source, target]
    mirrored(None, *words)
    assert remaining_changes(way, source, target) == []
    before = state(target)
    mirrored(None, *words)
    assert state(target) == before


# ---- modes -------------------------------------------------------------------------------------

_WORD = st.from_regex(r"[DF]?[ugoa]{0,3}[-+=][rwxXst]{0,4}", fullmatch=True)
_COPY = st.from_regex(r"[DF]?[ugoa]{0,3}[-+=][ugo]", fullmatch=True)
_NUMBER = st.from_regex(r"[DF]?[0-7]{1,4}", fullmatch=True)
_ANY = st.text("DFugoa+-=rwxXst0178,", min_size=1, max_size=8)
_MODES = st.one_of(
    st.lists(st.one_of(_WORD, _COPY, _NUMBER), min_size=1, max_size=3).map(",".join), _ANY
)


@searched(80, soak=2000)
@given(text=_MODES)
@example("a-s")
@example("ua+s,o-s")
@example("=s")
@example("g=u,Fo=g,D-o,ug+o")
@example("=u")
@example("a=g")
@example("uo=u")
@example("Fg-u,+g,Do=o")
@example("g=ur")
@example("o=ug")
def test_modes_are_those_of_rsync(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    place = tmp_path_factory.mktemp("modes")
    (place / "a").mkdir()
    modes = (0, 0o600, 0o4755, 0o2711, 0o1666, 0o7777)
    for mode in modes:
        (place / f"a/f{mode:o}").touch()
        (place / f"a/d{mode:o}").mkdir()
        for kind in "fd":
            (place / f"a/{kind}{mode:o}").chmod(mode)
    line = ["rsync", "-a", f"--chmod={text}", f"{place}/a/", f"{place}/b/"]
    done = subprocess.run(line, capture_output=True, check=False)
    umask = os.umask(0)
    os.umask(umask)
    try:
        steps = read_modes(text, umask)
    except ValueError:
        assert done.returncode == 1, text
        return
    assert done.returncode == 0, (text, done.stderr)
    for mode in modes:
        for kind_bits, letter in ((stat.S_IFREG, "f"), (stat.S_IFDIR, "d")):
            copy = os.stat(place / f"b/{letter}{mode:o}").st_mode
            assert oct(changed(kind_bits | mode, steps)) == oct(copy), (text, letter, mode)


# ---- lists -------------------------------------------------------------------------------------


def entries(path: bytes, name: str = ACCESS) -> list[tuple[int, int, int]]:
    return list(entries_of(os.getxattr(path, name)))


def access(*named: tuple[int, int, int]) -> bytes:
    bare = [(OWNER, 7, NOBODY), (OWNING_GROUP, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 1, NOBODY)]
    return packed(sorted((*bare, *named)))


@pytest.fixture
def listed(place: bytes) -> tuple[bytes, bytes]:
    """Create a tree whose lists name users 1001 and 1002 and group 1003."""
    source = place + b"/a"
    os.makedirs(source + b"/d")
    write_file(source + b"/file", b"content")
    named = (USER, 6, 1001), (USER, 3, 1002), (GROUP, 4, 1003)
    for path in (source + b"/file", source + b"/d"):
        os.setxattr(path, ACCESS, access(*named))
    os.setxattr(source + b"/d", DEFAULT, access(*named))
    write_file(source + b"/d/inner", b"")
    return source, place + b"/b"


def test_users_and_groups_of_lists_are_mapped(listed: tuple[bytes, bytes]) -> None:
    """Access lists and default lists are mapped; `--chown` does not affect them."""
    source, target = listed
    mirrored(TWO, "--usermap=1001-900:2001", source, target, code=2)
    mirrored(TWO, "--usermap=1001:2009,1002:2002", "--groupmap=1003:2003", source, target)
    named = [(USER, 3, 2002), (USER, 6, 2009), (GROUP, 4, 2003)]
    for path, name in ((b"/file", ACCESS), (b"/d", ACCESS), (b"/d", DEFAULT)):
        found = entries(target + path, name)
        assert [entry for entry in found if entry[0] in (USER, GROUP)] == named
    before = state(target)
    mirrored(TWO, "--usermap=1001:2009,1002:2002", "--groupmap=1003:2003", source, target)
    assert state(target) == before
    mirrored(TWO, "--chown=2001:2001", source, target)
    assert entries(target + b"/file") == entries(source + b"/file")
    assert os.stat(target + b"/d/inner").st_uid == 2001


def test_users_mapped_to_one_get_the_access_of_both(listed: tuple[bytes, bytes]) -> None:
    source, target = listed
    mirrored(TWO, "--usermap=1001-1002:2001", source, target)
    for path, name in ((b"/file", ACCESS), (b"/d", ACCESS), (b"/d", DEFAULT)):
        users = [entry for entry in entries(target + path, name) if entry[0] == USER]
        assert users == [(USER, 2, 2001)]
    subprocess.run(
        [required("setfacl"), "-m", "u:1:r", target + b"/file"], check=True
    )  # it is a valid list


def test_a_mode_counts_for_the_list(listed: tuple[bytes, bytes]) -> None:
    source, target = listed
    mirrored(TWO, "--chmod=F640,Dg-w", source, target)
    found = {tag: rights for tag, rights, _ in entries(target + b"/file")}
    assert (found[OWNER], found[MASK], found[OTHER], found[OWNING_GROUP]) == (6, 4, 0, 5)
    assert stat.S_IMODE(os.stat(target + b"/file").st_mode) == 0o640
    assert stat.S_IMODE(os.stat(target + b"/d").st_mode) == 0o751
    assert entries(target + b"/d", DEFAULT) == entries(source + b"/d", DEFAULT)
    assert differences(source, target, "--chmod=F640,Dg-w") == ""


# ---- effects of other options -------------------------------------------------------------------


def test_a_dry_run_lists_the_changes_of_rsync(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    Tree(source, 17)
    copy_of(source, target)
    options = ("--numeric-ids", "--chown=4001:4002", "--chmod=Fo=r")
    before = state(target)
    finished = mirrored(TWO, "--dry-run", "-i", *options, source, target)
    assert state(target) == before
    lines = differences(source, target, *options).splitlines()
    assert lines
    ours = sorted(line[:11] for line in finished.out.decode(errors="replace").splitlines())
    assert ours == sorted(line[:11] for line in lines)


def test_a_tree_mirrored_with_the_same_options_is_linked(place: bytes) -> None:
    """Yesterday's mirror with the same options is linked."""
    source, first, second = place + b"/a", place + b"/1", place + b"/2"
    os.mkdir(source)
    write_file(source + b"/file", b"content")
    os.utime(source + b"/file", (10**9, 10**9))
    mirrored(TWO, "--chown=4001:4002", source, first)
    mirrored(TWO, "--chown=4001:4002", "--link-dest", first, source, second)
    assert os.stat(first + b"/file").st_ino == os.stat(second + b"/file").st_ino
    mirrored(TWO, "--chown=4001:4003", "--link-dest", first, source, place + b"/3")
    assert os.stat(first + b"/file").st_ino != os.stat(place + b"/3/file").st_ino
    assert os.stat(first + b"/file").st_gid == 4002


def test_a_quiet_target_of_other_maps_is_brought_up_to_date(place: bytes) -> None:
    """The saved state of the last run is valid only for a run with the same maps."""
    source, target = place + b"/a", place + b"/b"
    os.makedirs(source + b"/d")
    for number in range(20):
        path = write_file(source + b"/d/%d" % number, b"content")
        os.setxattr(path, ACCESS, access((USER, 6, 1001)))
    ways: list[tuple[str, ...]] = [
        (),
        ("--usermap=1001:2001",),
        ("--usermap=1001:2002",),
        ("--usermap=1001:2002", "--chmod=Fo-x"),
        (),
    ]
    for options in ways:
        mirrored(TWO, *options, source, target)
        to = 1001 if not options else int(options[0][-4:])
        assert (USER, 6, to) in entries(target + b"/d/7")
        assert stat.S_IMODE(os.stat(target + b"/d/7").st_mode) & 1 == (len(options) < 2)
        _make_quiet(place)
        before = state(target)
        mirrored(TWO, *options, source, target)
        assert state(target) == before
        _make_quiet(place)


def _make_quiet(place: bytes) -> None:
    """Simulate that the last run starts in a minute, with no changes since."""
    (name,) = [name for name in os.listdir(place) if name.startswith(b".fmirror-")]
    path = Path(os.fsdecode(os.path.join(place, name)))
    lines = path.read_text().splitlines()
    began = f"began {int(time.time()) + 60}.000000000"
    lines = [began if line.startswith("began ") else line for line in lines]
    path.write_text("\n".join(lines) + "\n")


def test_an_interrupted_run_is_not_resumed_with_other_maps(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    for number in range(3000):
        write_file(source + b"/%d" % number, b"content")
    words: list[str | bytes] = ["-q", "-j2", "--ops-limit=2000", source, target]
    with Run(None, "--chown=4001:4002", *words, program=FMIRROR) as run:
        while not os.path.isdir(target) or len(os.listdir(target)) < 200:
            time.sleep(0.01)
        run.signal(signal.SIGINT)
        assert run.finish().code == 130
    other = run_fmirror(None, "--resume", "--chown=4001:4003", *words)
    assert other.code == 2
    assert "different options (--chown)" in other.said
    assert run_fmirror(None, "--resume", "--chown=4001:4002", *words).code == 0
    assert differences(source, target, "--chown=4001:4002") == ""


def test_invalid_options_are_refused(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source)
    cases: list[tuple[tuple[str, ...], str]] = [
        (("--chown=:",), "must be USER:GROUP"),
        (("--chown=nobody-has-this-name",), "unknown user"),
        (("--chmod=g=ur",), "invalid mode 'g=ur'"),
        (("--chmod=DFu+x",), "invalid mode"),
        (("--usermap=1:2", "--chown=3"), "cannot be combined"),
        (("--groupmap=1:2", "--chown=:3"), "cannot be combined"),
        (("--usermap=1",), "must be FROM:TO"),
        (("--numeric-ids", "--usermap=b*:1"), "name patterns"),
        (("--chmod=a+x", "--preserve=timestamps"), "--chmod requires"),
        (("--groupmap=1:2", "--preserve=mode,timestamps"), "require --preserve=ownership"),
    ]
    for options, text in cases:
        finished = run_fmirror(TWO, *options, source, target)
        assert finished.code == 2, options
        assert text in finished.said
    assert not os.path.exists(target)


def test_an_ordinary_user_changes_modes_but_not_owners(place: bytes) -> None:
    source, target = place + b"/a", place + b"/b"
    os.mkdir(source, 0o755)
    os.chmod(write_file(source + b"/file", b"content"), 0o644)
    for path in (place, source, source + b"/file"):
        os.chown(path, 65534, 65534)
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    probe = [*user, sys.executable, "-c", "import msgspec"]
    if (
        shutil.which("setpriv") is None
        or subprocess.run(probe, capture_output=True, check=False).returncode
    ):
        pytest.skip("another user cannot run this interpreter and its modules")
    finished = run_fmirror(None, "-q", "-j1", "--chown=4001", source, target, prefix=user)
    assert finished.code == 2
    assert "only root" in finished.said
    for _ in range(2):
        finished = run_fmirror(None, "-q", "-j1", "--chmod=F600", source, target, prefix=user)
        assert finished.code == 0, finished.said
    assert stat.S_IMODE(os.stat(target + b"/file").st_mode) == 0o600
