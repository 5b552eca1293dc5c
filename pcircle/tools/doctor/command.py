"""The `pcircle doctor` command, which collects all facts and writes the report."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence

from pcircle.cli import json_output as jsonout
from pcircle.cli.output import MessageStream
from pcircle.cli.results import Results
from pcircle.core.encoding import show
from pcircle.core.errors import EntriesFailed, UsageError, worst
from pcircle.tools.doctor import machine
from pcircle.tools.doctor.launcher import examined, launching
from pcircle.tools.doctor.report import SCHEMA, DoctorReport, advice, broken, text
from pcircle.transport.launch import launched
from pcircle.transport.start import warn_stale_launcher


def examine(paths: Sequence[bytes], json: str | None, *, trials: bool, deadline_s: float) -> int:
    """Report all facts, also to the file `json`, and return the exit code.

    Raise UsageError if an argument is invalid.
    """
    for path in paths:
        if not path:
            raise UsageError("empty file name")
    if json is not None:
        jsonout.check(json)
    warn_stale_launcher("pcircle doctor")
    found, trouble = launching(os.environ)
    if launched().rank:
        return 0  # the first rank reports
    paths = paths or list(dict.fromkeys((b".", os.fsencode(tempfile.gettempdir()))))
    sections = {
        "software": machine.software(),
        "launching": found,
        "cores": machine.cores(),
        "memory": machine.memory(),
        "limits": machine.limits(),
        "control_groups": machine.control_groups(),
    }
    places = {show(path): examined(path, trials=trials, deadline_s=deadline_s) for path in paths}
    wrong = list(broken(sections, places, trouble))
    report = DoctorReport(
        SCHEMA, **sections, paths=places, broken=wrong, advice=list(advice(sections, places))
    )
    results = Results("pcircle doctor", json, MessageStream(sys.stderr).line)
    results.document(report)
    if json != "-":
        results.text([text(report).encode()])
    return worst((EntriesFailed.exit_code if wrong else 0, results.code))
