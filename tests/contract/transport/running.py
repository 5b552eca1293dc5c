"""Run a body of the contract suite on a real transport, in separate processes.

``python -m tests.contract.transport.running KIND SIZE BODY FOLDER ARGUMENTS`` is one MPI process,
with SIZE ranks if KIND is hybrid, and otherwise the whole job. Each rank writes its result to
FOLDER, as JSON, under its number; a rank that failed writes nothing, and the job's exit code
reports the failure.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcircle.transport.contract import Transport
from pcircle.transport.launch import Choice, launched
from pcircle.transport.start import start
from tests.contract.transport.bodies import Steps


def drive(transport: Transport, steps: Steps) -> object:
    """Poll for *steps* until they end; return their result."""
    try:
        timeout_s = next(steps)
        while True:
            timeout_s = steps.send(transport.poll(timeout_s))
    except StopIteration as end:
        return end.value


def command(
    kind: str, size: int, body: Callable[..., Steps], folder: Path, arguments: tuple[Any, ...]
) -> list[str]:
    """Return the command that leaves the results of *body* in *folder*."""
    place = f"{body.__module__}:{body.__name__}"
    module = "tests.contract.transport.running"
    return [
        sys.executable,
        "-m",
        module,
        kind,
        str(size),
        place,
        str(folder),
        json.dumps(arguments),
    ]


def results(size: int, folder: Path) -> list[Any]:
    """Return the results of the ranks, None for a rank without a result."""
    files = [folder / f"{rank}.json" for rank in range(size)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def main(kind: Any, size: str, place: str, folder: str, arguments: str) -> int:
    module, name = place.split(":")
    body: Callable[..., Steps] = getattr(importlib.import_module(module), name)

    def rank_body(transport: Transport) -> int:
        result = drive(transport, body(transport, *json.loads(arguments)))
        (Path(folder) / f"{transport.rank}.json").write_text(json.dumps(result))
        return 0

    if kind == "hybrid":
        return start(Choice("mpi", 1, launched(), int(size)), rank_body)
    return start(Choice(kind, int(size), launched()), rank_body)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
