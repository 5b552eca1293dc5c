"""Create, remove and look at names of a striped store.

    python -m examples.striped_store PLACE create NAME...
    mpirun -np 8 python -m examples.striped_store PLACE stat NAME... --shape=client

Rank 0 asks for all names at once and says what became of each; all ranks serve. What an earlier job
has left undecided is finished first. `check` goes through the store as fsck does.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from examples.striped_store.store import Change, StripedStore, check
from pcircle.collective import Answer, Directory, Service
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

_MAX_PATIENCE_S = 86_400


def main() -> int:
    """Carry out the command line; exit code 1 if something was refused, lost or is in doubt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    parser.add_argument("verb", choices=("create", "remove", "stat", "check"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("-j", "--jobs", type=int)
    parser.add_argument("--shape", choices=("collective", "client"), default="collective")
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--capacity", type=int, help="data objects that a rank has room for")
    args = parser.parse_args()
    if not 0 < args.patience <= _MAX_PATIENCE_S:
        parser.error("--patience: must be between 0 and a day")
    choice = choose("auto", args.jobs, launched())
    return start(choice, lambda transport: _body(transport, args))


def _body(transport: Transport, args: argparse.Namespace) -> int:
    records = args.place / "decisions"
    records.mkdir(parents=True, exist_ok=True)
    store = StripedStore(args.place, transport.rank, transport.size, args.capacity)
    service = Service(transport, store, Directory(os.fsencode(records)), args.patience)
    code = int(service.recover() > 0)
    if not transport.rank and args.verb != "check":
        changes = [Change(args.verb, name, transport.size) for name in args.names]
        requests = [change.request() for change in changes]
        answers = service.do_all(requests, collective=args.shape == "collective")
        for change, answer in zip(changes, answers, strict=True):
            print(_line(change, answer), flush=True)
            code |= not answer.decided
    if not transport.rank and args.verb == "check":
        found = check(args.place, transport.size)
        print(f"{found.names} names, {found.intents} intents", flush=True)
        for what, some in (("orphan", found.orphans), ("missing", found.missing)):
            print("".join(f"{what}: {each}\n" for each in some), end="", flush=True)
        code |= bool(found.orphans or found.missing)
    code = service.serve(code)
    transport.close()
    return code


def _line(change: Change, answer: Answer) -> str:
    """What became of one name."""
    why = "; ".join(f"rank {each.rank}: {each.refusal}" for each in answer.said if each.refusal)
    if answer.decided is None:
        return f"{change.verb} {change.name}: in doubt: {why}"
    if not answer.decided:
        return f"{change.verb} {change.name}: nothing done: {why}"
    if change.verb == "stat":
        size_bytes = sum(int(each.value) for each in answer.said)
        return f"stat {change.name}: {size_bytes} bytes in {len(answer.said)} objects"
    return f"{change.verb} {change.name}: done" + (f", but {why}" if why else "")


if __name__ == "__main__":
    sys.exit(main())
