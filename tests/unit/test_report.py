"""The report of a copy: counts add up, texts match the numbers, names are escaped."""

from __future__ import annotations

import msgspec
import pytest

from pcircle.cli.console import rank_share
from pcircle.cli.report import RankShare, shares
from pcircle.jobs.failures import FailedEntry, Failure
from pcircle.ops.copy.tree.counters import CopyCounters, RecordedCounts, named, totals
from pcircle.runtime import RankReport
from pcircle.tools.common.copy_console import (
    SCHEMA,
    CopyReport,
    summary,
)

FAILURE = Failure(b"dir/\xff\nname", "open", 13, "Permission denied", 0, b"\xff\nname")


def add_up(*reports: RankReport) -> CopyCounters:
    return CopyCounters.total(report.counts for report in reports)


def rank_report(rank: int, counted: CopyCounters, **changes: object) -> RankReport:
    report = RankReport(
        rank=rank,
        node=rank // 2,
        counts=counted.row(),
        items=1200,
        spawned=5,
        steals_asked=7,
        steals_got=3,
        parcels_got=40,
        messages=90,
        message_bytes=2048,
        spilled=0,
        cpu_s=1.23456,
        peak_rss_bytes=64 << 20,
    )
    return msgspec.structs.replace(report, **changes)


def share(report: RankReport) -> RankShare:
    counts = totals(report.counts)
    return rank_share(report, counts.completed, counts.bytes_done)


ONE = CopyCounters(
    found=10,
    sized=10,
    scans_due=2,
    scans_done=2,
    files=6,
    directories=2,
    links=1,
    failed=1,
    bytes_found=3 << 20,
    bytes_done=2 << 20,
)
TWO = CopyCounters(found=3, sized=2, scans_due=1, files=3, bytes_done=1 << 20)


def make_report(**changes: object) -> CopyReport:
    report = CopyReport(
        schema=SCHEMA,
        tool="fcp",
        version="1",
        exit_code=0,
        dry_run=False,
        sources=("a",),
        target="b",
        entries=12,
        files=9,
        directories=2,
        links=1,
        special=0,
        bytes=3 << 20,
        found=13,
        failed=0,
        skipped=0,
        special_skipped=0,
        resumed=0,
        resumed_bytes=0,
        directories_created=2,
        not_kept={},
        elapsed_s=2.0,
        bytes_per_s=1.5 * (1 << 20),
        entries_per_s=6.0,
        reasons=(),
        failures=(),
        failures_omitted=0,
        ranks=(share(rank_report(0, ONE)), share(rank_report(1, TWO))),
    )
    return msgspec.structs.replace(report, **changes)


def test_counters_of_a_rank_are_read_back() -> None:
    counters = CopyCounters(**{name: number for number, name in enumerate(CopyCounters.names, 1)})
    counters.weight = 0.25
    sums = counters.sums()
    assert totals(sums.counts) == counters
    assert totals(named(sums.counts)) == counters
    assert (sums.weight, sums.ranks) == (0.25, 1)


def test_recorded_counts_exclude_resumed_work() -> None:
    counters = CopyCounters(found=3, files=3, resumed=2, resumed_bytes=5)
    assert named(counters.counts()) == {"found": 3, "files": 3}


def test_counts_of_another_version_are_those_that_are_known() -> None:
    assert totals({"found": 3, "unheard_of": 7}) == CopyCounters(found=3)
    counters = CopyCounters(found=1)
    counters.resume({"found": 3, "files": 3, "bytes_done": 5, "unheard_of": 7})
    assert counters == CopyCounters(found=4, files=3, bytes_done=5, resumed=3, resumed_bytes=5)


def test_ranks_add_up() -> None:
    total = add_up(rank_report(0, ONE), rank_report(1, TWO))
    assert (total.found, total.files, total.bytes_done) == (13, 9, 3 << 20)
    assert (total.completed, total.settled) == (12, 13)
    assert not total.known(0.0).scanned
    assert ONE.known(0.0).scanned


def test_ranks_that_count_differently_are_not_added() -> None:
    with pytest.raises(ValueError, match="shorter"):
        add_up(rank_report(0, ONE), rank_report(1, TWO, counts=(1, 2)))


def test_the_share_of_a_rank_is_its_own_work() -> None:
    rank_share = share(rank_report(3, ONE))
    assert (rank_share.rank, rank_share.node, rank_share.entries, rank_share.bytes) == (
        3,
        1,
        9,
        2 << 20,
    )
    assert (rank_share.steals_asked, rank_share.steals_got, rank_share.cpu_s) == (7, 3, 1.235)


def test_a_failure_is_one_printable_line() -> None:
    line = FAILURE.said("fcp")
    assert line.startswith("fcp: cannot open 'dir/")
    assert line.endswith("name': Permission denied")
    assert line.isprintable()
    entry = FAILURE.reported()
    assert entry == FailedEntry(entry.path, "open", 13, "Permission denied", "EACCES")
    assert entry.path.isprintable()
    assert entry.path.encode()  # valid text, unlike the name


def test_the_summary_of_a_copy() -> None:
    text = summary(make_report())
    assert text == (
        "copied 12 entries (9 files, 2 directories, 1 link), 3.0 MiB to 'b' in 2.00s: 1.5 MiB/s, "
        "6 entries/s"
    )
    text = summary(make_report(resumed=3, resumed_bytes=1024), "c")
    rates = "1.5 MiB/s, 6 entries/s, including 3 entries (1.0 KiB) from an earlier run"
    assert text.endswith(f" to 'c' in 2.00s: {rates}")


def test_nothing_to_do_is_reported() -> None:
    idle = {"entries": 2, "files": 0, "links": 0, "bytes": 0, "directories_created": 0}
    for dry in (False, True):
        assert summary(make_report(**idle, skipped=10, dry_run=dry)) == (
            "nothing to do: 10 entries skipped, 2 directories checked in 'b' in 2.00s"
        )
    nothing = idle | {"entries": 0, "directories": 0}
    assert summary(make_report(**nothing)) == "nothing to do in 2.00s"
    for changes in ({"failed": 1}, {"exit_code": 4}):
        assert "nothing to do" not in summary(make_report(**nothing, **changes))


def test_existing_directories_are_not_counted_as_copied() -> None:
    """They do not count in the rate either. An earlier run may have made them."""
    text = summary(make_report(directories_created=1))
    assert text == (
        "copied 11 entries (9 files, 1 directory, 1 link), 3.0 MiB to 'b' in 2.00s: 1.5 MiB/s, "
        "6 entries/s; 1 directory checked"
    )
    idle = {"entries": 2, "files": 0, "links": 0, "bytes": 0}
    text = summary(make_report(**idle, directories_created=1, skipped=1))
    assert text.startswith("copied 1 entry (0 files, ")
    assert text.endswith("; 1 entry skipped, 1 directory checked")
    text = summary(make_report(directories_created=0, resumed=3, resumed_bytes=1024))
    assert text.startswith("copied 12 entries (9 files, 2 directories, 1 link), ")


def test_attributes_that_were_set_are_reported() -> None:
    idle = {"entries": 2, "files": 0, "links": 0, "bytes": 0, "directories_created": 0}
    for dry, text in (
        (False, "attributes of 1 entry updated"),
        (True, "would update attributes of 1 entry"),
    ):
        output = summary(make_report(**idle, dry_run=dry), touched=1)
        assert output == f"{text}: 2 directories checked in 'b' in 2.00s"
        output = summary(make_report(dry_run=dry, skipped=3), touched=1)
        assert output.endswith(f"; 3 entries skipped, {text}")


def test_rates_of_zero_are_left_out() -> None:
    assert summary(make_report(bytes=0, bytes_per_s=0.2)).endswith(" in 2.00s: 6 entries/s")
    assert summary(make_report(bytes_per_s=0.0, entries_per_s=0.4)).endswith(" in 2.00s")


def test_one_is_not_many() -> None:
    assert summary(make_report(entries_per_s=1.2)).endswith(", 1 entry/s")
    text = summary(make_report(entries=1, files=1, directories=0, directories_created=0, links=0))
    assert "1 entry (1 file, 0 directories, 0 links)" in text


def test_failures_come_first() -> None:
    assert summary(make_report(failed=1)).startswith("1 entry failed; copied 12 entries")
    assert summary(make_report(failed=2)).startswith("2 entries failed; ")


def test_a_dry_run_claims_nothing() -> None:
    text = summary(make_report(dry_run=True))
    assert text.startswith("would copy 12 entries")
    assert "/s" not in text


def test_shares_are_a_row_for_each_rank() -> None:
    lines = shares(make_report().ranks, 12, 1).splitlines()
    assert lines[0].split() == ["rank", "node", "entries", "bytes", "share", "threads"]
    rows = [line.split() for line in lines if line.split()[0] in ("0", "1")]
    assert [(row[0], row[2], row[-2]) for row in rows] == [("0", "9", "75%"), ("1", "3", "25%")]
    assert [row[-1] for row in rows] == ["1", "1"]


def test_more_is_printed_with_vv() -> None:
    lines = shares(make_report().ranks, 12, 2).splitlines()
    for word in ("items", "steals", "messages", "sent", "spilled", "cpu", "peak memory"):
        assert word in lines[0]
    assert "3/7" in lines[-1]


def test_an_empty_copy_has_no_rate() -> None:
    report = make_report(entries=0, ranks=(share(rank_report(0, CopyCounters())),))
    assert "0%" in shares(report.ranks, report.entries, 1)


def test_the_report_is_plain_json() -> None:
    report = make_report(failures=(FAILURE.reported(),))
    assert msgspec.json.decode(msgspec.json.encode(report), type=CopyReport) == report


def test_large_files_that_wait_are_known_by_their_bytes() -> None:
    counters = CopyCounters(found=10, sized=7, bytes_found=70, scans_due=1, scans_done=1)
    counters.ahead, counters.ahead_bytes = 3, 3000
    known = counters.known(0.7)
    assert (known.sized, known.bytes_found, known.complete) == (10, 3070, True)
    assert "ahead" not in RecordedCounts.names, "it is of the moment, and in no record"
