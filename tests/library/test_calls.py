"""Calls of tools as functions: results, errors, cancellation, and what the program keeps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pcircle
from pcircle.cli.progress import ProgressView
from pcircle.core.errors import Interrupted, StoppedEarly, UsageError
from pcircle.library.call import FUNCTIONS, arguments_of, options_of
from pcircle.tools.common.copy_console import CopyReport
from tests.library.conftest import Script

CALL = """\
import pcircle, threading
if __name__ == "__main__":
    {prepare}
    report = pcircle.copy("data", "copy", p=True, {jobs})
    say(report.exit_code, report.files, report.entries, len(report.ranks))
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("threads", [False, True], ids=["alone", "threads"])
def test_local_processes(script: Script, jobs: int, threads: bool) -> None:
    """Also in a program with threads, such as a notebook, which cannot be forked."""
    prepare = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    text = CALL.format(prepare=prepare if threads else "pass", jobs=f"jobs={jobs}")
    assert script(text) == [f"0 3 5 {jobs}"]


@pytest.mark.mpi
@pytest.mark.parametrize(("jobs", "ranks"), [("", 2), ("jobs=2", 4)])
def test_all_ranks_of_mpi_get_the_result(
    script: Script, mpirun: Callable[[int], list[str]], jobs: str, ranks: int
) -> None:
    """Several calls are possible, and all ranks raise the same error."""
    text = CALL.format(prepare="pass", jobs=jobs) + (
        "    try: pcircle.copy('missing', 'copy')\n"
        "    except pcircle.UsageError as error: say(error)\n"
        "    say(pcircle.copy('data', 'second').files)\n"
    )
    error = "cannot use source 'missing': No such file or directory"
    assert script(text, *mpirun(2)) == [f"0 3 5 {ranks}"] * 2 + ["3"] * 2 + [error] * 2


@pytest.mark.mpi
def test_rank_0_of_mpi_has_all_results(
    script: Script, mpirun: Callable[[int], list[str]], here: Path
) -> None:
    """The output of 600 rows is longer than a piece that is read from it."""
    for number in range(600):
        (here / "data" / f"file {number}").touch()
    text = (
        "import pcircle\n"
        "rows = sum(row.kind == 'f' for row in pcircle.entries('data', recursive=True))\n"
        "say(rows, sum(1 for _ in pcircle.find('data', '-type', 'f')))\n"
    )
    assert sorted(script(text, *mpirun(2))) == ["0 0", "603 603"]


def test_the_report_is_the_document_of_the_command(here: Path) -> None:
    report = pcircle.copy("data", b"copy", exclude=["a", "c"], json=here / "report.json")
    with open("report.json", "rb") as file:
        assert msgspec.json.decode(file.read(), type=CopyReport) == report
    assert sorted(os.listdir("copy")) == ["b", "sub"]


def test_failed_entries_are_in_the_report(here: Path) -> None:
    (here / "copy" / "data" / "a").mkdir(parents=True)
    report = pcircle.copy("data", "copy", jobs=1)
    assert (report.exit_code, report.files, report.failed) == (1, 2, 1)
    assert [(entry.path, entry.error) for entry in report.failures] == [("copy/data/a", "EISDIR")]


def test_a_refused_call_raises(here: Path) -> None:
    with pytest.raises(UsageError, match="source 'missing'") as caught:
        pcircle.copy("missing", "copy")
    assert (caught.value.exit_code, caught.value.report) == (2, None)
    with pytest.raises(UsageError, match=r"^chunksize: invalid size 'much'"):
        pcircle.copy("data", "copy", chunksize="much")
    assert os.listdir() == ["data"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"exclude_form": "x"},
            "unexpected keyword argument 'exclude_form'; did you mean 'exclude_from'?",
        ),
        ({"skip_sam": True}, "did you mean 'skip_same'?"),
        ({"cancels": None}, "did you mean 'cancel'?"),
        ({"entirely_else": 1}, "copy() got an unexpected keyword argument 'entirely_else'"),
        ({"T": True}, "unexpected keyword argument 'T'; -T is 'no_target_directory'"),
        ({"j": 2}, "unexpected keyword argument 'j'; -j is 'jobs'"),
        ({"Z": True}, "copy() got an unexpected keyword argument 'Z'"),
        ({"v": True}, "copy() does not take 'v': only the command fcp does"),
        ({"verbose": True}, "copy() does not take 'verbose': only the command fcp does"),
        ({"target_directory": "x"}, "does not take 'target_directory': only the command fcp does"),
        ({"update": "yes"}, "copy(): 'update' must be True or False, not str"),
        ({"update": 1}, "copy(): 'update' must be True or False, not int"),
        ({"chunksize": object}, "copy(): 'chunksize' must be a number or text, not type"),
        ({"chunksize": True}, "copy(): 'chunksize' must be a number or text, not bool"),
        ({"jobs": [1, 2]}, "copy(): 'jobs' must be a number or text, not list"),
        ({"exclude": 3}, "copy(): 'exclude' must be text or a sequence of text, not int"),
        ({"exclude": ["a", 3]}, "copy(): 'exclude' must be text or a sequence of text, not int"),
        ({"error_log": 3}, "copy(): 'error_log' must be a path, not int"),
        ({"transport": 3}, "copy(): 'transport' must be text, not int"),
        ({"preserve": 3}, "copy(): 'preserve' must be text or True, not int"),
        ({"progress": 3}, "copy(): 'progress' must be a function, not int"),
        ({"messages": "x"}, "copy(): 'messages' must be a function, not str"),
        ({"stdout": b""}, "copy(): 'stdout' must be a function, not bytes"),
        ({"null": Fraction(1)}, "copy(): 'null' must be True or False, not fractions.Fraction"),
        ({"cancel": True}, "copy(): 'cancel' must have an is_set method, not bool"),
    ],
)
def test_wrong_arguments(here: Path, options: dict[str, Any], message: str) -> None:
    """They are refused before the job begins, so no checkpoint is left."""
    with pytest.raises(TypeError) as caught:
        pcircle.copy("data", "copy", **options)
    assert str(caught.value).endswith(message)
    assert os.listdir() == ["data"]


def test_wrong_arguments_of_other_functions(here: Path) -> None:
    call: Any = pcircle
    with pytest.raises(TypeError, match=r"'mod'; did you mean 'mode'\?"):
        call.change("data", mod="g+w")
    with pytest.raises(UsageError, match="one of mode, owner, group, acl"):
        call.change("data", recursive=True)
    with pytest.raises(TypeError, match=r"change\(\): 'mode' must be text, not int"):
        call.change("data", mode=0o644)
    with pytest.raises(TypeError, match=r"check\(\): 'rot' must be True or False, not str"):
        call.check("data.manifest", rot="data")
    for wrong in ({"progress": print, "jobs": 1}, {"stdout": print}):
        function = call.broadcast if "progress" in wrong else call.entries
        with pytest.raises(TypeError, match=f"does not take '{next(iter(wrong))}'$"):
            function("data", "copy", **wrong)
    with pytest.raises(TypeError, match="'progress' must be a function, not int"):
        call.find("data", progress=3)
    assert os.listdir() == ["data"]


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("remove", {}, "'data' is a directory: add recursive=True"),
        ("copy", {"jobs": "x"}, "jobs: invalid value 'x'"),
        ("copy", {"transport": "x"}, "transport: invalid value 'x'; choose from auto, mpi, local"),
        ("copy", {"min_size": 2, "max_size": 1}, "min_size is larger than max_size"),
        ("sign", {"null": True}, "null=True requires files_from, exclude_from or include_from"),
        ("sign", {"format": "coreutils", "chunksize": "4M"}, "chunksize cannot be combined with"),
        ("sign", {"format": "coreutils", "output": "x"}, "format='coreutils' cannot be combined"),
    ],
)
def test_a_refusal_names_keywords(
    here: Path, function: str, options: dict[str, Any], message: str
) -> None:
    operands = ["data", "copy"] if function == "copy" else ["data"]
    with pytest.raises(UsageError) as caught:
        getattr(pcircle, function)(*operands, **options)
    assert str(caught.value).startswith(message)
    assert os.listdir() == ["data"]


def test_a_refusal_keeps_names_of_files(here: Path) -> None:
    os.mkdir("a --restart -r")
    with pytest.raises(UsageError, match=r"'a --restart -r' is a directory: add recursive=True"):
        pcircle.remove("a --restart -r")


def test_a_number_is_no_path(here: Path) -> None:
    """It could be a descriptor."""
    for call in (pcircle.sign, pcircle.remove, pcircle.entries):
        with pytest.raises(TypeError, match="must be text or bytes, not int"):
            call(3)  # type: ignore[arg-type]
    untyped: Any = pcircle
    for source in (3, bytearray(b"data"), None, [3]):
        with pytest.raises(TypeError, match=r"copy\(\): a path must be text or bytes, not "):
            untyped.copy(source, "copy")


def test_arguments_become_words() -> None:
    options = {"include": ["a", "b"], "exclude": b"\xff", "bwlimit": 1e6, "jobs": 2.0}
    flags = {"update": True, "verify": False, "stripe": None, "preserve": True, "p": True}
    words, _ = arguments_of("copy", options | flags | {"files_from": Path("list")})
    assert words == [
        *("--include=a", "--include=b", "--exclude=\udcff", "--bwlimit=1000000", "--jobs=2"),
        *("--update", "--preserve", "-p", "--files-from=list"),
    ]


# ---- while it runs -------------------------------------------------------------------------------


class Stopping:
    """Receives views, and acts on the first that shows work."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.views: list[ProgressView] = []
        self._act = act

    def __call__(self, view: ProgressView) -> None:
        self.views.append(view)
        if view.bytes_done:
            self._act()


def _slow_copy(**options: Any) -> CopyReport:
    """Copy 5 MiB at a rate of 1 MiB per second."""
    Path("data/large").write_bytes(os.urandom(5 << 20))
    return pcircle.copy("data", "copy", jobs=1, bwlimit="1MiB", **options)


def _assert_resumable(report: CopyReport) -> None:
    assert report.exit_code == 130
    assert 0 < report.bytes < 5 << 20
    resumed = pcircle.copy("data", "copy", jobs=1, resume=True)
    assert (resumed.exit_code, resumed.files) == (0, 4)
    assert Path("copy/large").read_bytes() == Path("data/large").read_bytes()
    assert not [name for name in os.listdir() if name.startswith(".fcp")]


def test_cancel_keeps_the_checkpoint(here: Path) -> None:
    cancel = threading.Event()
    progress = Stopping(cancel.set)
    with pytest.raises(Interrupted, match="stopped by the program") as caught:
        _slow_copy(progress=progress, cancel=cancel)
    _assert_resumable(caught.value.report)
    assert 0 < progress.views[-1].fraction < 1


def test_an_exception_of_a_callback_stops_the_job(here: Path) -> None:
    def fail() -> None:
        raise LookupError("not wanted")

    with pytest.raises(LookupError, match="not wanted"):
        _slow_copy(progress=Stopping(fail))
    assert pcircle.copy("data", "copy", jobs=1, resume=True).files == 4


def test_a_call_on_a_thread(here: Path) -> None:
    results: list[CopyReport] = []
    thread = threading.Thread(target=lambda: results.append(pcircle.copy("data", "copy", jobs=2)))
    thread.start()
    thread.join()
    assert [report.exit_code for report in results] == [0]


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need the main thread"
)
def test_an_interrupt_reaches_the_program(here: Path) -> None:
    """Ctrl-C ends the job in good order, and is then KeyboardInterrupt."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            _slow_copy(progress=Stopping(lambda: signal.raise_signal(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, former)
    error = caught.value.__cause__
    assert isinstance(error, Interrupted)
    _assert_resumable(error.report)


def test_a_job_that_stops_early_raises(here: Path) -> None:
    with pytest.raises(StoppedEarly) as caught:
        _slow_copy(stop_after="0.3s")
    assert caught.value.report.exit_code == 4
    assert pcircle.copy("data", "copy", jobs=1, resume=True).exit_code == 0


def test_the_program_is_left_as_it_was(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def state() -> list[object]:
        umask = os.umask(0)
        os.umask(umask)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        return [os.getcwd(), umask, mask, handlers, sorted(os.listdir("/proc/self/fd"))]

    before = state()
    messages: list[str] = []
    (here / "copy" / "data" / "a").mkdir(parents=True)
    os.umask(0o777)
    try:
        pcircle.copy("data", "copy", jobs=2, messages=messages.append)
    finally:
        assert os.umask(0o022) == 0o777
    with pytest.raises(UsageError):
        pcircle.copy("missing", "copy", jobs=2)
    assert state() == before
    assert capfd.readouterr() == ("", "")
    assert messages[0].startswith("fcp: cannot ")
    assert any("copied" in message for message in messages)


def test_functions_take_the_options_of_their_tools() -> None:
    for function in FUNCTIONS:
        assert {"jobs", "transport"} <= options_of(function).keys()
