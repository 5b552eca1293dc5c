"""Output for users and scripts: safe names, lost terminals, atomic JSON files, aligned tables."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcircle.cli import json_output as jsonout
from pcircle.cli import listing, output, progress
from pcircle.core import encoding
from pcircle.core.errors import UsageError
from tests.conftest import Run

# ---------------------------------------------------------------------------------------- names


def _unshow(text: str) -> bytes:
    """Return the inverse of show, written from its description."""
    data = b""
    for piece in re.findall(r"\\\\|\\x..|\\u....|\\U........|[^\\]", text):
        if piece == r"\\":
            data += b"\\"
        elif piece.startswith("\\x"):
            data += bytes.fromhex(piece[2:])
        elif piece.startswith("\\"):
            data += chr(int(piece[2:], 16)).encode()
        else:
            data += piece.encode()
    return data


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"plain name.txt", "plain name.txt"),
        ("Größe-文件".encode(), "Größe-文件"),
        (b"a\nb\x1b[2J\x7f\r", r"a\x0ab\x1b[2J\x7f\x0d"),
        (b"latin-\xe9", r"latin-\xe9"),
        (b"back\\slash", r"back\\slash"),
        ("evil\u202etxt.exe".encode(), r"evil\u202etxt.exe"),
        ("line\u2028end\u0085".encode(), r"line\u2028end\u0085"),
        ("tag\U000e0041".encode(), r"tag\U000e0041"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"", ""),
    ],
)
def test_names_are_shown(name: bytes, text: str) -> None:
    assert encoding.show(name) == text


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_displayed_names_are_safe_and_reversible(name: bytes) -> None:
    text = encoding.show(name)
    assert text.isprintable()
    text.encode()  # without lone surrogates
    assert not any(
        unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text
    )
    assert _unshow(text) == name


# ------------------------------------------------------------------------------------- progress


def _view(elapsed_s: float, **changes: object) -> progress.ProgressView:
    view = progress.ProgressView(
        fraction=0.4217,
        exact=False,
        bytes_done=3 << 29,
        bytes_total=None,
        entries_done=12_345,
        elapsed_s=elapsed_s,
        rate_bytes_s=310.0 * (1 << 20),
        rate_entries_s=5231.4,
        remaining_s=None,
    )
    return msgspec.structs.replace(view, **changes)


class Terminal:
    """A pseudo-terminal: *stream* is the program's side; seen() returns the text on the screen."""

    def __init__(self) -> None:
        self._screen_fd, program_fd = os.openpty()
        self.stream: TextIO = open(program_fd, "w", encoding="utf-8")  # noqa: SIM115
        self._seen = b""

    def seen(self) -> str:
        os.set_blocking(self._screen_fd, False)
        try:
            while data := os.read(self._screen_fd, 65536):
                self._seen += data
        except BlockingIOError:  # all bytes were read
            pass
        return self._seen.decode()

    def close(self) -> None:
        if self._screen_fd >= 0:
            os.close(self._screen_fd)
            self._screen_fd = -1

    def close_all(self) -> None:
        self.close()
        self.stream.close()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    opened = Terminal()
    yield opened
    opened.close_all()


def test_plain_lines_are_printed_once_per_interval() -> None:
    stream = io.StringIO()
    shown = progress.make("auto", stream, quiet=False, interval_s=10)
    for tenth_s in range(0, 351):
        shown.update(_view(tenth_s / 10))
    shown.close()
    shown.update(_view(100))
    lines = stream.getvalue().splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "~42.1% after 10.0s",
        "~42.1% after 20.0s",
        "~42.1% after 30.0s",
    ]
    assert lines[0].endswith(": 1.5 GiB, 12,345 entries, 310.0 MiB/s, 5,231 entries/s")


def test_a_line_has_all_known_figures() -> None:
    view = _view(5, exact=True, bytes_total=3 << 30, remaining_s=303.0, failed=2, stale_ranks=1)
    assert progress.describe(view) == (
        "1.5 GiB of 3.0 GiB, 12,345 entries, 310.0 MiB/s, 5,231 entries/s, 5m03s left, "
        "2 failed, 1 rank not responding"
    )


def test_hundred_percent_is_not_shown_early() -> None:
    stream = io.StringIO()
    shown = progress.plain(stream, 0)
    shown.update(_view(1, fraction=0.99999, exact=True))
    shown.update(_view(2, fraction=1.0, exact=True))
    assert [line.split(" ")[0] for line in stream.getvalue().splitlines()] == ["99.9%", "100.0%"]


@pytest.mark.parametrize(("mode", "quiet"), [("never", False), ("auto", True), ("never", True)])
def test_silence_still_prints_notes(mode: progress.Mode, quiet: bool) -> None:
    stream = io.StringIO()
    shown = progress.make(mode, stream, quiet=quiet, interval_s=0)
    shown.update(_view(100))
    shown.note("dir/name: Permission denied")
    shown.close()
    assert stream.getvalue() == "dir/name: Permission denied\n"


def test_a_terminal_gets_a_bar_and_is_restored(terminal: Terminal) -> None:
    threads = threading.active_count()
    path = "deep/" * 60
    shown = progress.make("auto", terminal.stream, quiet=False, interval_s=10)
    shown.update(_view(0.4))
    shown.note("early: [red]Input/output error")
    assert terminal.seen() == "early: [red]Input/output error\r\n"
    for tenth_s in range(6, 30):
        shown.update(_view(tenth_s / 10))
    assert "~42.1%" in terminal.seen()
    assert "1.5 GiB, 12,345 entries, 310.0 MiB/s, 5,231 entries/s" in terminal.seen()
    assert terminal.seen().count("\x1b[?25l") == 1  # the cursor is hidden, once
    shown.note(f"{path}: [bold]Input/output error")
    assert threading.active_count() == threads
    shown.close()
    shown.close()
    shown.update(_view(50))
    shown.note("after")
    seen = terminal.seen()
    assert f"{path}: [bold]Input/output error\r\n" in seen  # neither wrapped nor markup
    assert seen.rindex("\x1b[?25h") > seen.rindex("42.1%")  # the cursor is back
    assert seen.endswith("\x1b[2Kafter\r\n")  # the bar's line was erased


@pytest.mark.parametrize("columns", ["20", "40", "60", "80", "200"])
def test_the_bar_stays_on_one_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = progress.make("always", terminal.stream, quiet=True, interval_s=10)
    view = _view(1, bytes_total=3 << 30, entries_done=12_345_678, remaining_s=7512.0)
    shown.update(view)
    drawn = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", terminal.seen())
    assert "\n" not in drawn
    assert len(drawn) <= int(columns)
    assert "42.1%" in drawn
    assert "2h05m left" in drawn
    assert ("1.5 GiB" in drawn) == (int(columns) >= 40)
    shown.close()


def test_a_terminal_without_a_cursor_gets_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    shown = progress.make("always", terminal.stream, quiet=False, interval_s=1)
    shown.update(_view(1))
    assert terminal.seen().startswith("~42.1% after 1.00s: ")


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_other_streams_get_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """With ``--progress always`` a log has no escape sequences or carriage returns."""
    monkeypatch.setenv("TERM", "xterm")
    path = tmp_path / "log"
    if kind == "pipe":
        os.mkfifo(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    with open(fd, "w", encoding="utf-8") as log:
        shown = progress.make("always", log, quiet=True, interval_s=1)
        shown.update(_view(1))
        shown.update(_view(2.5))
        shown.close()
        said = (os.read(fd, 4096) if kind == "pipe" else path.read_bytes()).decode()
    assert not {"\x1b", "\r"} & set(said)
    assert [line.split(": ")[0] for line in said.splitlines()] == [
        "~42.1% after 1.00s",
        "~42.1% after 2.50s",
    ]


def test_a_vanished_terminal_is_no_error(terminal: Terminal) -> None:
    shown = progress.make("auto", terminal.stream, quiet=False, interval_s=10)
    shown.update(_view(1))
    terminal.close()
    shown.update(_view(2))
    shown.note("nobody reads this")
    shown.close()


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
def test_a_missing_or_closed_stream_is_no_error(
    mode: progress.Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        shown = progress.make(mode, stream, quiet=False, interval_s=0)
        shown.update(_view(1))
        shown.note("text")
        shown.close()


def test_a_full_pipe_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PATIENCE_S", 0.01)
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    with open(read_fd, "rb") as reader, open(write_fd, "w", encoding="utf-8") as writer:
        lines = output.MessageStream(writer)
        lines.line("x" * (1 << 20))
        os.read(read_fd, 1 << 20)
        lines.line("and on")
        assert reader.read(7) == b"and on\n"


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_a_broken_pipe_leaves_the_exit_code_alone(run: Run, mode: str) -> None:
    """Python itself would exit with 120 when its buffer can't be flushed."""
    program = (
        "import os, sys\n"
        "from pcircle.cli import progress\n"
        "from tests.unit.test_ui import _view\n"
        "read_fd, write_fd = os.pipe()\n"
        "os.dup2(write_fd, 2)\n"
        "os.close(read_fd)\n"
        f"shown = progress.make({mode!r}, sys.stderr, quiet=False, interval_s=0)\n"
        "shown.update(_view(1)); shown.note('text'); shown.update(_view(2)); shown.close()\n"
        "shown.note('more')\n"
        "print('reached')\n"
    )
    done = run([sys.executable, "-c", program], env={**os.environ, "TERM": "xterm"})
    assert (done.returncode, done.stdout) == (0, b"reached\n")


def test_a_short_run_never_imports_rich(run: Run) -> None:
    program = (
        "import sys\n"
        "from pcircle.cli import progress\n"
        "shown = progress.live(sys.stderr)\n"
        "view = dict(fraction=1, exact=True, bytes_done=1, bytes_total=1, entries_done=1,\n"
        "            rate_bytes_s=1, rate_entries_s=1, remaining_s=0)\n"
        "shown.update(progress.ProgressView(elapsed_s=0.49, **view))\n"
        "shown.note('text')\n"
        "assert 'rich' not in sys.modules\n"
        "shown.update(progress.ProgressView(elapsed_s=0.51, **view))\n"
        "assert 'rich' in sys.modules\n"
        "shown.close()\n"
    )
    done = run([sys.executable, "-c", program], env={**os.environ, "TERM": "xterm"})
    assert done.returncode == 0, done.stderr


def test_names_that_the_terminal_lacks_are_escaped() -> None:
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb") as reader, open(write_fd, "w", encoding="ascii") as writer:
        output.MessageStream(writer).line("Größe")
        assert reader.read(12) == rb"Gr\xf6\xdfe" + b"\n"


# --------------------------------------------------------------------------------------- tables


def test_columns_line_up() -> None:
    text = listing.render(
        [["0", "12,345", "file"], ["10", "7", "文件"], ["2", "", ""]],
        align="rrl",
        header=["rank", "entries", "largest"],
    )
    assert text == ("rank  entries  largest\n   0   12,345  file\n  10        7  文件\n   2\n")


def test_wide_and_combining_characters_are_counted_in_cells() -> None:
    assert listing.cell_width("文件") == 4
    assert listing.cell_width("e\u0301") == 1
    assert listing.render([["文件", "1"], ["abcd", "2"]], align="lr") == "文件  1\nabcd  2\n"


def test_an_empty_table_prints_nothing() -> None:
    assert listing.render([], align="lr", header=["a", "b"]) == ""


@pytest.mark.parametrize("rows", [[["a"], ["b", "c"]], [["a", "b", "c"]]])
def test_a_ragged_table_is_refused(rows: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="argument"):
        listing.render(rows, align="lr")


# ----------------------------------------------------------------------------------------- JSON


class Report(msgspec.Struct, frozen=True):
    """A document of two fields."""

    schema: int
    name: str


REPORT = Report(schema=1, name="Größe")


def test_a_document_is_indented_json_in_the_order_of_its_fields() -> None:
    assert jsonout.encode(REPORT).decode() == '{\n  "schema": 1,\n  "name": "Größe"\n}\n'


def test_dash_is_standard_output() -> None:
    stdout = io.BytesIO()
    jsonout.check("-")
    jsonout.write(REPORT, "-", stdout)
    assert json.loads(stdout.getvalue()) == {"schema": 1, "name": "Größe"}


def _write(path: Path) -> None:
    stdout = io.BytesIO()
    jsonout.check(str(path))
    jsonout.write(REPORT, str(path), stdout)
    assert stdout.getvalue() == b""


def test_a_file_is_replaced_in_one_step_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o640)
    with path.open() as old:
        _write(path)
        assert old.read() == "old"  # another file: a reader never sees half of the new one
    assert path.read_bytes() == jsonout.encode(REPORT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    _write(tmp_path / "report.json")
    assert (tmp_path / "report.json").stat().st_mode == other.stat().st_mode


def test_a_link_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    _write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == jsonout.encode(REPORT)


def test_a_fifo_and_an_open_descriptor_are_written_as_they_are(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        _write(fifo)
        assert reader.read() == jsonout.encode(REPORT)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    target = tmp_path / "target"
    with target.open("wb") as file:
        _write(Path(f"/dev/fd/{file.fileno()}"))
        assert os.fstat(file.fileno()).st_ino == target.stat().st_ino
    assert target.read_bytes() == jsonout.encode(REPORT)


def test_unwritable_files_are_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directory does not exist"):
        jsonout.check(str(tmp_path / "no" / "report.json"))
    with pytest.raises(UsageError, match="is a directory"):
        jsonout.check(str(tmp_path))


def test_a_failed_write_raises_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="irectory"):
        jsonout.write(REPORT, str(tmp_path / "directory"), io.BytesIO())
    with pytest.raises(FileNotFoundError):
        jsonout.write(REPORT, str(tmp_path / "no" / "report.json"), io.BytesIO())
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]
