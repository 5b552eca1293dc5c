"""Names are bytes in every locale, even where the encoding maps two of them to the same text.

Python decodes names by the locale's encoding, and in four of these some names do not decode back to
the same bytes, but to those of another name. The locales are generated for the test, if the system
has their sources. The reference is `os.listdir` of bytes in the C locale.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.programs import needs_mount_namespace

from ..fprof.running import profiled, run_fprof
from ..fsum.running import run_fsum
from .judge import METADATA, differences
from .running import ONE, TWO, clean_environment, document, run_fcp
from .trees import make_directory, write_file

# Both names of a pair have the same text, which is encoded as the second one.
LOCALES = {
    "zh_TW.BIG5": [(b"\xa2\xcc", b"\xa4Q"), (b"\xa2@", b"\xa2B"), (b"\xa2\xce", b"\xa4\xca")],
    "zh_HK.BIG5-HKSCS": [(b"\xa2~", b"\xf9\xfa"), (b"\xa1\xfe", b"\xa2A"), (b"\xa2@", b"\xa2B")],
    "ko_KR.JOHAB": [(b"\x84A", b"\xd91"), (b"\x84B", b"\x88A"), (b"\x84C", b"\x8cA")],
}


def _environment(name: str, place: bytes) -> dict[str, str]:
    """Return the environment of a generated locale; skip the test where that is impossible."""
    localedef = shutil.which("localedef")
    if localedef is None:
        pytest.skip("localedef is not installed")
    folder = os.fsdecode(make_directory(place, b"locales"))
    language, _, encoding = name.partition(".")
    made = subprocess.run(
        [localedef, "--no-archive", "-c", "-i", language, "-f", encoding, f"{folder}/{name}"],
        check=False,
        capture_output=True,
    )
    environment = {"LC_ALL": name, "LOCPATH": folder, "PYTHONUTF8": "0"}
    first, second = LOCALES[name][0]
    probe = "import os, sys; print(os.fsencode(os.fsdecode(bytes.fromhex(sys.argv[1]))).hex())"
    finished = subprocess.run(
        [sys.executable, "-c", probe, first.hex()],
        check=False,
        capture_output=True,
        env={**os.environ, **environment},
    )
    if finished.stdout.strip() != second.hex().encode():
        pytest.skip(f"there is no locale {name} here: {made.stderr!r} {finished.stderr!r}")
    return environment


def _build(place: bytes, name: str) -> bytes:
    """Build a tree with these names: of directories, files, links and extended attributes."""
    (root, other), files, links = LOCALES[name]
    source = make_directory(place, root)
    write_file(make_directory(place, other) + b"/decoy", b"")
    for directory in (root, other):
        here = make_directory(source, directory)
        for file in files:
            write_file(here + b"/" + file, directory + file)
            try:
                for attribute in files:
                    os.setxattr(here + b"/" + file, b"user." + attribute, attribute)
            except OSError as error:
                pytest.skip(f"no extended attributes here: {error}")
        for link in links:
            os.symlink(link, here + b"/" + link)
    return source


@pytest.mark.parametrize("name", list(LOCALES))
def test_names_with_the_same_text_stay_separate(place: bytes, name: str) -> None:
    """They are copied, signed and counted as in any locale; operands and options are exact."""
    environment = _environment(name, place)
    source = _build(place, name)
    (root, other), (file, second), _ = LOCALES[name]
    target = place + b"/copy " + root
    report = place + b"/report " + root

    def fcp(*arguments: str | bytes) -> None:
        finished = run_fcp(TWO, *arguments, environment=environment)
        assert finished.code == 0, finished.said

    fcp("-a", "--json", report, source, target)
    assert differences(source, target, METADATA) == []
    for name_of in (file, second):
        attributes = os.listxattr(os.path.join(target, root, name_of))
        assert sum(attribute.startswith("user.") for attribute in attributes) == 2
    assert document(report)["files"] == 4
    listed = place + b"/list " + second
    write_file(listed, root + b"/" + second + b"\n" + other + b"\n")
    few = place + b"/few " + other
    fcp("-ar", "--files-from", listed, "--exclude", b"/" + other + b"/" + file, source, few)
    assert sorted(os.listdir(few)) == sorted((root, other))
    assert os.listdir(few + b"/" + root) == [second]
    assert file not in os.listdir(few + b"/" + other)
    assert second in os.listdir(few + b"/" + other)

    manifest = place + b"/manifest " + root
    signed = run_fsum(TWO, "-o", manifest, source, environment=environment)
    assert signed.code == 0, signed.said
    assert os.path.exists(manifest)
    assert run_fsum(ONE, source).out.split()[0] == signed.out.split()[0]
    os.unlink(target + b"/" + root + b"/" + second)
    checked = run_fsum(ONE, "--check", manifest, target, environment=environment)
    assert checked.code == 3
    assert b"missing" in checked.out + checked.err

    saved = place + b"/profile " + root
    profile = run_fprof(TWO, "-q", "--save", saved, source, environment=environment)
    assert profile.code == 0, profile.said
    assert profiled(None, "--merge", saved)["counts"]["files"]["number"] == 4


def test_resuming_with_names_of_the_same_text(place: bytes) -> None:
    """Checkpoints and error logs of one locale are valid in another."""
    environment = _environment("zh_TW.BIG5", place)
    source = _build(place, "zh_TW.BIG5")
    file, second = LOCALES["zh_TW.BIG5"][1]
    (root, _) = LOCALES["zh_TW.BIG5"][0]
    target, log = place + b"/copy", place + b"/log " + file
    blocked = make_directory(target, root, second)
    arguments = ("-aT", source, target)
    failed = run_fcp(ONE, "--error-log", log, *arguments, environment=environment)
    assert failed.code == 1, failed.said
    os.rmdir(blocked)
    again = run_fcp(ONE, "--retry-from", log, *arguments, environment=environment)
    assert again.code == 0, again.said
    assert differences(source, target, METADATA - {"times"}) == []


@needs_mount_namespace
def test_without_proc_ambiguous_names_are_refused(place: bytes) -> None:
    environment = _environment("zh_TW.BIG5", place)
    source = _build(place, "zh_TW.BIG5")
    hidden = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
    operand = run_fcp(ONE, source, place + b"/copy", prefix=hidden, environment=environment)
    assert operand.code == 2, operand.said
    assert "set LC_ALL=C.UTF-8" in operand.said
    os.rename(source, place + b"/plain")
    tree = run_fcp(ONE, place + b"/plain", place + b"/copy", prefix=hidden, environment=environment)
    assert tree.code == 1, tree.said
    assert os.listdir(place + b"/copy") == []


_LISTING = """
import os, sys
from pcircle.aio import Files
folder = bytes.fromhex(sys.argv[1])
with Files() as io:
    fd = io.open(folder, os.O_RDONLY).result()
    for name in io.readdir(fd).result():
        (attribute,) = io.listxattr(os.path.join(folder, os.fsencode(name))).result()
        print(os.fsencode(name).hex(), os.fsencode(attribute).hex())
    os.close(fd)
"""


def test_the_asynchronous_layer_lists_names_that_open(place: bytes) -> None:
    environment = _environment("zh_TW.BIG5", place)
    folder = make_directory(place, b"folder")
    names = [name for pair in LOCALES["zh_TW.BIG5"] for name in pair]
    for name in names:
        os.setxattr(write_file(folder + b"/" + name, b""), b"user." + name, b"")
    listed = subprocess.run(
        [sys.executable, "-c", _LISTING, folder.hex()],
        check=False,
        capture_output=True,
        env={**clean_environment(), **environment},
    )
    assert listed.returncode == 0, listed.stderr
    lines = sorted(f"{name.hex()} {(b'user.' + name).hex()}" for name in names)
    assert sorted(listed.stdout.decode().splitlines()) == lines
