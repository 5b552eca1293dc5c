"""`tests.strace` returns whole calls, whatever the format of the log."""

from __future__ import annotations

from pathlib import Path

from tests.strace import Call, max_calls, parse, read_calls


def test_a_call_in_one_line() -> None:
    assert parse('12    openat(3</a>, ") = 1", O_RDONLY) = 4</a/b>\n') == [
        Call(12, 'openat(3</a>, ") = 1", O_RDONLY) = 4</a/b>', 0, 0)
    ]


def test_interrupted_calls_are_joined() -> None:
    log = (
        "10 read(5</path>,  <unfinished ...>\n"
        "11 close(7 <unfinished ...>\n"
        '12 write(6, "x", 1)                 = 1\n'
        "11 <... close resumed>)             = -1 EBADF (Bad file descriptor)\n"
        '10 <... read resumed>"content", 100) = 7\n'
    )
    calls = parse(log)
    assert calls == [
        Call(12, 'write(6, "x", 1) = 1', 2, 2),
        Call(11, "close(7) = -1 EBADF (Bad file descriptor)", 1, 3),
        Call(10, 'read(5</path>, "content", 100) = 7', 0, 4),
    ]
    assert [call.name for call in calls] == ["write", "close", "read"]
    assert [call.result for call in calls] == ["1", "-1 EBADF (Bad file descriptor)", "7"]


def test_signals_and_exits_are_not_calls() -> None:
    log = (
        "10 futex(0x1, FUTEX_WAIT, 0, NULL <unfinished ...>\n"
        "11 --- SIGCHLD {si_signo=SIGCHLD, si_pid=12} ---\n"
        "10 <... futex resumed>) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)\n"
        "10 --- SIGINT {si_signo=SIGINT} ---\n"
        "10 exit_group(0) = ?\n"
        "10 +++ exited with 0 +++\n"
        "11 +++ killed by SIGKILL +++\n"
    )
    calls = parse(log)
    assert [(call.name, call.result) for call in calls] == [
        ("futex", "? ERESTARTSYS (To be restarted if SA_RESTART is set)"),
        ("exit_group", "?"),
    ]


def test_a_call_that_never_returns_is_last() -> None:
    log = (
        '10 unlinkat(3, "a", 0 <unfinished ...>\n'
        "11 fsync(3) = 0\n"
        "10 +++ killed by SIGKILL +++\n"
        "10 close(1 <unfinished ...>\n"  # another process that has its number
    )
    calls = parse(log)
    assert [(call.text, call.result) for call in calls] == [
        ("fsync(3) = 0", "0"),
        ('unlinkat(3, "a", 0', ""),
        ("close(1", ""),
    ]
    assert [call.begin for call in calls] == [1, 0, 3]
    assert [call.end > 3 for call in calls] == [False, True, True]


def test_a_call_without_its_beginning_has_a_name() -> None:
    assert parse("10 <... read resumed>, 100) = 7\n") == [Call(10, "read(, 100) = 7", 0, 0)]


def test_logs_of_strace_that_are_still_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'10 read(0, "\xff", 1) = 1\n10 read(0, "", 1) = 0\n11 fsync(3')
    assert [call.name for call in read_calls(log)] == ["read", "read", "fsync"]
    assert max_calls(log) == 2
