"""Plans and records that a test modifies on purpose."""

from __future__ import annotations

import re

from pcircle.jobs.plan_output import Checksums

_CHECK = re.compile(rb',(?:"check":)?"[0-9a-f]{16}"(?=[\]}]$)')


def with_checksums(text: bytes) -> bytes:
    """Return lines of a plan with the checksums that a run would have written."""
    bare = b"".join(_CHECK.sub(b"", line) + b"\n" for line in text.splitlines())
    return Checksums().added(bare)
