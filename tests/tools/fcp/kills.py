"""Copies that are killed several times, and resumed until they complete.

A seed determines a round: the options, the launcher of each run, the moment of the kill, and
whether one rank or all are killed. The last run is not disturbed. Then the copy must equal that of
an uninterrupted run, in content and in counts, with nothing left next to it. A failing round is
reproduced by its seed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from tests.signed import signature_of
from tests.tools.fcp.edited import Edited
from tests.tools.fcp.judge import METADATA, differences, hole_differences, rsync_differences
from tests.tools.fcp.running import Launcher, Run, document, run_fcp
from tests.tools.fcp.trees import (
    add_holes,
    add_links,
    add_modes,
    add_odd_names,
    content,
    make_directory,
    remove_tree,
    set_times,
    write_file,
)

LAUNCHERS = tuple(Launcher(jobs=n) for n in (1, 2, 4)) + tuple(Launcher(ranks=n) for n in (2, 3))
LOCAL = tuple(Launcher(jobs=n) for n in (1, 2, 3, 4))
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("-a",),
    ("-p",),
    (),
    ("-a", "--sparse=never"),
    ("-a", "-n"),
    ("-a", "-u"),
    ("-a", "--skip-same"),
    ("-p", "--inplace"),
    ("-a", "--verify"),
    ("-p", "--verify", "--inplace"),
    ("-a", "-s"),
    ("-a", "-s", "--verify"),
    ("-a", "--threads", "3"),
    ("-p", "--inplace", "--threads", "8"),
)
EDITED_OPTIONS: tuple[tuple[str, ...], ...] = (
    ("-a",),
    ("-a", "-s"),
    ("-a", "--verify"),
    ("-a", "--inplace"),
    ("-a", "-s", "--verify", "--threads", "3"),
    ("-p",),
)
COUNTS = ("entries", "files", "directories", "links", "special", "bytes", "found", "skipped")
# Limits that make a run last some seconds, so that it can be killed.
PACE = ("--bwlimit", "120M", "--ops-limit", "8000", "--chunksize", "4M")
_LONGEST_S = 1.6


def build_mixed_tree(root: bytes, rng: Random, files: int = 1500, *, pipes: bool) -> bytes:
    """Build small and large files, links of both kinds, holes, odd modes, in many directories."""
    os.mkdir(root)
    add_odd_names(make_directory(root, b"odd"))
    add_links(make_directory(root, b"links"), longest=200)
    add_modes(make_directory(root, b"modes"))
    add_holes(make_directory(root, b"holes"))
    places = [root]
    for number in range(40):
        place = os.path.join(rng.choice(places[-12:]), b"d%d" % number)
        os.mkdir(place)
        places.append(place)
    small = [make_directory(root, b"small")]
    made = []
    for number in range(300):  # with few files each, the usual case
        place = os.path.join(rng.choice(small[-30:]), b"%d" % number)
        os.mkdir(place)
        small.append(place)
        for name in range(rng.randrange(5)):
            made.append(write_file(os.path.join(place, b"%d" % name), b"%d" % number * name))
    places += small[::10]
    flat = make_directory(root, b"flat")
    for number in range(files):
        place = flat if number % 2 else rng.choice(places)
        size = rng.choice((0, 10, 300, 4096, 20_000)) if number % 50 else 200_000
        path = os.path.join(place, b"f%d" % number)
        made.append(write_file(path, content(number, size)))
    for number in range(3):
        large = os.path.join(rng.choice(places), b"large%d" % number)
        write_file(large, content(number, 21 << 20))
        for other in range(number):
            os.link(large, os.path.join(rng.choice(places), b"large%d too %d" % (number, other)))
    if pipes:
        os.mkfifo(os.path.join(root, b"pipe"))
        os.link(os.path.join(root, b"pipe"), os.path.join(flat, b"pipe too"))
    for number in range(60):
        os.link(rng.choice(made), os.path.join(rng.choice(places), b"same%d" % number))
    set_times(root)
    return root


class Round(NamedTuple):
    """The outcome of a round: kills, runs that ended earlier, entries not copied again."""

    kills: int
    early: int
    resumed: int
    document: dict[str, Any]


def build_sources(place: bytes) -> tuple[bytes, bytes]:
    """Build the sources of copies with -a, and without."""
    whole = build_mixed_tree(os.path.join(place, b"whole"), Random(1), pipes=True)
    plain = build_mixed_tree(os.path.join(place, b"plain"), Random(2), pipes=False)
    return whole, plain


def play(
    place: bytes,
    sources: tuple[bytes, bytes],
    seed: int,
    launchers: Sequence[Launcher] = LAUNCHERS,
    *,
    kills: int | None = None,
    options: tuple[str, ...] | None = None,
) -> Round:
    """Play one round in the directory `place`; AssertionError, with the seed, on failure."""
    rng = Random(f"kills {seed}")
    options = options or rng.choice(OPTIONS)
    source = sources["-a" not in options]
    target, report = os.path.join(place, b"copy"), os.path.join(place, b"report")
    arguments: list[str | bytes] = [*options, "--checkpoint-interval", "0.2", "--json", report]
    # Otherwise a run that ends before its kill would change the meaning of DST.
    arguments += ["-T", source, target]
    wanted = rng.choice((1, 1, 2, 3)) if kills is None else kills
    done = early = 0
    for attempt in range(wanted):
        again = ["--resume"] if attempt else []
        with Run(rng.choice(launchers), *again, *PACE, *arguments) as run:
            code = _kill(run, rng)
        has_checkpoint = any(name.startswith(b".fcp-checkpoint-") for name in os.listdir(place))
        assert code in (None, 0), f"seed {seed}: a run ended with {code} before it was killed"
        done += code is None
        # A kill before the start or after the end leaves nothing to continue.
        early += code == 0 or not has_checkpoint
    finished = run_fcp(rng.choice(launchers), "--resume", *arguments)
    said = f"seed {seed}, {' '.join(options)}: {finished.said}"
    assert finished.code == 0, f"exit code {finished.code}: {said}"
    result = document(report)
    _judge(place, source, target, options, said)
    if "-s" in options:
        wanted_signature = signature_of(source)
        assert result["signatures"][0]["signature"] == wanted_signature, said
    if not early:
        _compare(place, source, options, result, said)
    remove_tree(target)
    return Round(done, early, result["resumed"], result)


def play_lost(
    place: bytes, sources: tuple[bytes, bytes], seed: int, *, many: bool = False
) -> Round:
    """Play a round whose ranks, except the first, are killed one by one: it must succeed by itself.

    With `many` perhaps all of them are killed.
    """
    rng = Random(f"lost {seed}")
    options = rng.choice(OPTIONS)
    source = sources["-a" not in options]
    target, report = os.path.join(place, b"copy"), os.path.join(place, b"report")
    interval = rng.choice(("0.1", "0.5", "60"))
    arguments: list[str | bytes] = [*options, "--checkpoint-interval", interval, "--json", report]
    arguments += ["-T", source, target]
    wanted, killed = rng.choice((1, 1, 2, 3)), 0
    jobs = rng.choice((2, 3, 4, 8, 12))
    if many:
        wanted = rng.randrange(1, jobs)
    with Run(Launcher(jobs=jobs), *PACE, *arguments) as run:
        while len(run.processes()) < jobs and run.process.poll() is None:
            time.sleep(0.001)  # on a busy machine all would be killed before there are ranks
        for _ in range(wanted):
            time.sleep(rng.random() * _LONGEST_S)
            workers = [pid for pid in run.processes() if pid != run.process.pid]
            if workers:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    killed += 1
        finished = run.finish()
    said = f"seed {seed}, {' '.join(options)}, {killed} killed: {finished.said}"
    assert finished.code == 0, f"exit code {finished.code}: {said}"
    result = document(report)
    _judge(place, source, target, options, said)
    if "-s" in options:
        signed = result["signatures"][0]["signature"]
        assert signed == signature_of(source), f"signature {signed}: {said}"
    _compare(place, source, options, result, said)
    remove_tree(target)
    return Round(killed, wanted - killed, result["resumed"], result)


def play_edited(place: bytes, seed: int, launchers: Sequence[Launcher] = LAUNCHERS) -> Round:
    """Play a round whose source is edited all the time; AssertionError, with the seed.

    An entry that differs from every version of the source must be absent and reported.
    """
    rng = Random(f"edited {seed}")
    options = rng.choice(EDITED_OPTIONS)
    target, report, log = (os.path.join(place, name) for name in (b"copy", b"report", b"log"))
    arguments: list[str | bytes] = [*options, "--checkpoint-interval", "0.2", "--json", report]
    wanted = rng.choice((1, 1, 2, 3))
    kills = early = 0
    with Edited(os.path.join(place, b"source"), seed) as source:
        arguments += ["-T", os.path.join(place, b"source"), target]
        for attempt in range(wanted):
            again = ["--resume"] if attempt else []
            with Run(rng.choice(launchers), *again, *PACE, *arguments) as run:
                code = _kill(run, rng)
            assert code in (None, 0, 1), f"seed {seed}: a run ended with {code}"
            kills += code is None
            early += code is not None
        finished = run_fcp(rng.choice(launchers), "--resume", *PACE, "--error-log", log, *arguments)
    said = f"seed {seed}, {' '.join(options)}, {source.edits} edits: {finished.said}"
    assert finished.code in (0, 1), said
    result = document(report)
    wrong = source.wrong(target, _failed(log))
    assert wrong == [], f"{said}: {len(wrong)}: {wrong[:6]}"
    assert (finished.code == 0) == (result["failed"] == 0), said
    if "-s" in options and not result["failed"]:
        assert result["signatures"][0]["signature"] == signature_of(target), said
    remove_tree(target)
    return Round(kills, early, result["resumed"], result)


def _failed(log: bytes) -> set[bytes]:
    """Return the absolute source paths of an error log's entries."""
    with open(log, "rb") as lines:
        entries = [json.loads(line) for line in lines]
    return {
        os.path.join(
            unquote_to_bytes(entry_line["source"]), unquote_to_bytes(entry_line["entry"])
        ).rstrip(b"/")
        for entry_line in entries
    }


def _kill(run: Run, rng: Random) -> int | None:
    """Kill one rank or all at a random time; return the exit code of a run that was faster."""
    time.sleep(rng.random() * _LONGEST_S)
    chosen = run.processes()
    ranks = [pid for pid in chosen if _is_rank(pid)]
    if rng.random() < 0.3 and len(ranks) > 1:
        chosen = [rng.choice(ranks)]
    segments = _segments(ranks)
    for pid in chosen:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
    code = run.process.wait(60)
    assert run.wait_until_gone(30) == [], "a rank outlives the one that was killed"
    for path in segments:
        with suppress(FileNotFoundError):  # its launcher should have removed it
            os.unlink(path)
    return code if code == 0 else None


def _is_rank(pid: int) -> bool:
    """Return whether a process is fcp itself, and not its launcher."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"python" in os.path.basename(file.read().split(b"\0")[0])
    except OSError:
        return False  # it has ended


def _judge(place: bytes, source: bytes, target: bytes, options: Sequence[str], said: str) -> None:
    keeps = "-a" in options or "-p" in options
    if "-a" in options:
        found = rsync_differences(source, target, preserved=True, more="HAX")
        holes = os.path.join(source, b"holes", b"holes"), os.path.join(target, b"holes", b"holes")
        if "--sparse=never" not in options:
            found += hole_differences(*holes)
    else:
        found = differences(source, target, METADATA if keeps else frozenset())
    assert found == [], f"{said}: {len(found)} differences: {found[:6]}"
    litter = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(place)
        for name in names
        if name.startswith(b".fcp-")
    ]
    assert litter == [], f"{said}: {litter}"
    left = [name for name in os.listdir(place) if name.startswith(b".fcp-")]
    assert left == [], f"{said}: {left}"


def _compare(
    place: bytes, source: bytes, options: Sequence[str], counts: dict[str, Any], said: str
) -> None:
    """Check that the counts equal those of an uninterrupted run."""
    plain, report = os.path.join(place, b"plain"), os.path.join(place, b"plain report")
    finished = run_fcp(LOCAL[1], *options, "--no-checkpoint", "--json", report, source, plain)
    assert finished.code == 0, finished.said
    expected = document(report)
    same = {name: (counts[name], expected[name]) for name in COUNTS}
    assert all(a == b for a, b in same.values()), f"{said}: {same}"
    remove_tree(plain)


def _segments(pids: Sequence[int]) -> set[str]:
    """Return the shared memory of an MPI job, which survives a kill."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps") as maps:
                lines = [line.split(None, 5) for line in maps]
        except OSError:
            continue  # it has ended
        found |= {line[5].strip() for line in lines if len(line) > 5}
    return {path for path in found if path.startswith(("/dev/shm/mpich_shm_", "/dev/shm/vader"))}


def room() -> bytes:
    """Create a directory in memory if possible, otherwise in the temporary directory."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    import tempfile

    return os.fsencode(tempfile.mkdtemp(prefix="fcp-kills-", dir=parent))


def clear(place: bytes) -> None:
    """Remove a directory and everything in it."""
    remove_tree(place)
    shutil.rmtree(place, ignore_errors=True)
