"""Faults: rules by operation, path, offset and count, which tests set at run time.

A rule applies its fault (an error, a delay, a short result, a flipped byte) to matching requests.
All matching rules count: delays are added, the first error wins. Matching costs a loop over all
rules per request, of which tests have few.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """A fault; the defaults match everything and do nothing.

    `ops` are names of FUSE operations in lower case ("*": every one). `path` is a pattern of
    fnmatch over the path below the mount (no slash in front; the root is "."), where ``*`` matches
    slashes too; of a rename either path may match. A read or write matches if it covers any of the
    bytes from `start` to before `end`.
    """

    ops: tuple[str, ...] = ("*",)
    path: str = "*"
    start: int = 0
    end: int = 1 << 62
    skip: int = 0  # number of matching requests that pass first
    times: int = 1 << 62  # number of requests affected afterwards
    errno: str = ""  # a name like "EIO"
    delay_s: float = 0.0
    at_most_bytes: int = -1  # of a read or a write (reads: only where mounted with direct)
    flip: int = -1  # the offset of a byte that is flipped on disk after a write covered it
    servers: int = 0
    busy_s: float = 0.0
    bytes_per_s: float = 0.0  # 0: transfers take no time
    stripe_bytes: int = 1 << 20


class Verdict(NamedTuple):
    """The faults for one request."""

    errno: int = 0
    delay_s: float = 0.0
    at_most_bytes: int = -1
    flip: int = -1


CLEAN = Verdict()


class Rules:
    """The rules of a mount, and the number of matches of each."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._patterns: list[bytes] = []
        self._matched: list[int] = []
        self._free_s: list[list[float]] = []  # when each server of each rule is free

    def set(self, rules: Sequence[dict[str, Any]]) -> None:
        """Replace all rules and reset the counts."""
        self._rules = [Rule(**{**rule, "ops": tuple(rule["ops"])}) for rule in rules]
        self._patterns = [os.fsencode(rule.path) for rule in self._rules]
        self._matched = [0] * len(rules)
        self._free_s = [[0.0] * rule.servers for rule in self._rules]

    def hits(self) -> list[int]:
        """Return the number of requests to which each rule was applied."""
        pairs = zip(self._rules, self._matched, strict=True)
        return [max(0, min(rule.times, count - rule.skip)) for rule, count in pairs]

    @property
    def any(self) -> bool:
        return bool(self._rules)

    def judge(
        self, op: str, paths: Sequence[bytes], offset: int, count: int, now_s: float = 0.0
    ) -> Verdict:
        """Return the faults for a request; `offset` and `count` are 0 unless it reads or writes."""
        verdict = CLEAN
        for number, rule in enumerate(self._rules):
            if op not in rule.ops and "*" not in rule.ops:
                continue
            if offset >= rule.end or (count and offset + count <= rule.start):
                continue
            if rule.flip >= 0 and not offset <= rule.flip < offset + count:
                continue
            if not any(fnmatch.fnmatchcase(path, self._patterns[number]) for path in paths):
                continue
            self._matched[number] += 1
            if rule.skip < self._matched[number] <= rule.skip + rule.times:
                verdict = _worse(verdict, rule)
                if rule.servers:
                    served_s = self._served_s(number, paths[0], offset, count, now_s)
                    verdict = verdict._replace(delay_s=verdict.delay_s + served_s)
        return verdict

    def _served_s(self, number: int, path: bytes, offset: int, count: int, now_s: float) -> float:
        """Return the time that a request waits for its server and is served."""
        rule, free_s = self._rules[number], self._free_s[number]
        server = (zlib.crc32(path) + offset // rule.stripe_bytes) % rule.servers
        bytes_s = count / rule.bytes_per_s if rule.bytes_per_s else 0.0
        free_s[server] = max(free_s[server], now_s) + rule.busy_s + bytes_s
        return free_s[server] - now_s


def _worse(verdict: Verdict, rule: Rule) -> Verdict:
    code = getattr(errno, rule.errno) if rule.errno else 0
    return Verdict(
        verdict.errno or code,
        verdict.delay_s + rule.delay_s,
        rule.at_most_bytes if verdict.at_most_bytes < 0 else verdict.at_most_bytes,
        rule.flip if verdict.flip < 0 else verdict.flip,
    )
