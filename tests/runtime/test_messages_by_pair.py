"""The messages that each rank sent to each other rank, as printed with -vv or --stats --stats."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pcircle.cli.listing import human
from pcircle.cli.report import PAIRS_SHOWN, RankShare, Sent, messages_by_pair
from tests.conftest import Run


def share(rank: int, sent: tuple[Sent, ...], sent_block: int = 1) -> RankShare:
    totals = sum(one.messages for one in sent), sum(one.bytes for one in sent)
    return RankShare(rank, 0, 0, 0, 0, 0, 0, *totals, 0, 0.0, 0, sent=sent, sent_block=sent_block)


def all_pairs(ranks: int, messages: int, size: int) -> list[RankShare]:
    return [
        share(rank, tuple(Sent(to, messages + to, size) for to in range(ranks) if to != rank))
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    ("tool", "words"), [("fcp", ["-vv"]), ("fsum", ["-vv"]), ("fprof", ["--stats", "--stats"])]
)
def test_rows_add_up_to_the_totals_of_the_ranks(
    run: Run, tmp_path: Path, tool: str, words: list[str]
) -> None:
    for number in range(40):
        (tmp_path / "tree" / str(number)).mkdir(parents=True)
        (tmp_path / "tree" / str(number) / "file").write_bytes(bytes(number))
    paths = [str(tmp_path / "tree"), *([str(tmp_path / "copy")] if tool == "fcp" else [])]
    result = tmp_path / "result"
    module = f"pcircle.tools.{tool}"
    done = run([sys.executable, "-m", module, "-j3", *words, "--json", str(result), *paths])
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).decode().splitlines()
    shares = json.loads(result.read_bytes())["ranks"]
    assert len(shares) == 3
    for title, total in (("messages", "messages"), ("bytes", "message_bytes")):
        start = lines.index(f"{title} sent")
        assert lines[start + 1].split() == ["from", "to", "0", "to", "1", "to", "2", "all"]
        rows = [line.split() for line in lines[start + 2 : start + 6]]
        assert [row[0] for row in rows] == ["0", "1", "2", "all"]
        for row, rank in zip(rows, shares, strict=False):
            assert sum(sent[title] for sent in rank["sent"]) == rank[total] > 0
            if title == "messages":
                assert sum(map(int, row[1:4])) == int(row[4]) == rank[total]
            else:
                assert row[4] == human(rank[total]).decode()
            assert row[1 + rank["rank"]] == "0", "no rank sends messages to itself"


@pytest.mark.parametrize(("messages", "size"), [(7, 900), (99_000, 10**6), (10**8, 10**15)])
def test_eight_ranks_fit_the_width_of_a_terminal(messages: int, size: int) -> None:
    text = messages_by_pair(all_pairs(8, messages, size))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) == 2 * (1 + 1 + 8 + 1)


def test_of_more_ranks_the_busiest_pairs_are_listed() -> None:
    ranks = all_pairs(9, 10, 100)
    ranks[4] = share(4, (Sent(2, 3, 5 << 20), Sent(0, 1, 1)))
    lines = [line.split() for line in messages_by_pair(ranks).splitlines()]
    assert lines[0] == ["from", "to", "messages", "sent"]
    assert lines[1] == ["4", "2", "3", "5.0", "MiB"]
    assert len(lines) == 1 + PAIRS_SHOWN + 1
    assert lines[-1][:2] == [str(8 * 8 + 2 - PAIRS_SHOWN), "others"]
    shown = sum(int(line[2]) for line in lines[1:])
    assert shown == sum(rank.messages for rank in ranks)


def test_receivers_of_a_large_job_are_counted_by_blocks() -> None:
    ranks = [share(rank, ()) for rank in range(299)]
    ranks[7] = share(7, (Sent(4, 1, 10), Sent(298, 1, 20)), sent_block=2)
    lines = [line.split() for line in messages_by_pair(ranks).splitlines()]
    assert [line[:2] for line in lines[1:]] == [["7", "298"], ["7", "4-5"]]
