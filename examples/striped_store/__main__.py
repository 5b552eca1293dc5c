"""Use the files of a striped store.

    python -m examples.striped_store PLACE create NAME...
    python -m examples.striped_store PLACE write LOCAL-FILE NAME
    mpirun -np 8 python -m examples.striped_store PLACE stat NAME... --shape=client

Rank 0 performs the operation on all names; all ranks serve. Operations that an earlier job left
undecided are completed first. `check` checks the store like fsck.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from pathlib import Path

from examples.striped_store.checker import check
from examples.striped_store.client import Calls, Client
from examples.striped_store.store import StripedStore
from pcircle.collective import Directory, Service
from pcircle.transport.contract import Transport
from pcircle.transport.launch import choose, launched
from pcircle.transport.start import start

_MAX_PATIENCE_S = 86_400
VERBS = ("create", "write", "read", "mkdir", "ls", "stat", "rename", "remove", "rmdir", "check")
PAIRS = ("write", "rename")


def main() -> int:
    """Carry out the command line; exit code 1 if something was refused, lost or is in doubt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-j", "--jobs", type=int)
    parser.add_argument("--shape", choices=("collective", "client"), default="collective")
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--capacity", type=int, help="data objects that a rank has room for")
    args = parser.parse_args()
    if not 0 < args.patience <= _MAX_PATIENCE_S:
        parser.error("--patience: must be between 0 and a day")
    if args.verb in PAIRS and len(args.names) != 2:
        parser.error(f"{args.verb}: requires two names")
    choice = choose("auto", args.jobs, launched())
    return start(choice, lambda transport: _body(transport, args))


def _body(transport: Transport, args: argparse.Namespace) -> int:
    records = args.place / "decisions"
    records.mkdir(parents=True, exist_ok=True)
    store = StripedStore(args.place, transport.rank, transport.size, args.capacity)
    service = Service(transport, store, Directory(os.fsencode(records)), args.patience)
    code = int(service.recover() > 0)
    if not transport.rank and args.verb != "check":
        who = (os.geteuid(), os.getegid(), *os.getgroups())
        calls = Calls(transport.size, who, umask=_umask())
        client = Client(service, calls, collective=args.shape == "collective")
        names = args.names[:1] if args.verb in PAIRS else args.names
        for name in names:
            code |= _perform(client, args, name)
    if not transport.rank and args.verb == "check":
        found = check(args.place, transport.size)
        print(f"{found.names} names, {found.intents} intents", flush=True)
        for what in ("orphans", "missing", "repeated"):
            for line in getattr(found, what):
                print(f"{what}: {line}", flush=True)
                code = 1
    code = service.serve(code)
    transport.close()
    return code


def _perform(client: Client, args: argparse.Namespace, name: str) -> int:
    """Perform the operation on one name; return its exit code."""
    try:
        text = _result(client, args, name)
    except OSError as error:
        print(f"{args.verb}: {name}: {error.strerror}", file=sys.stderr, flush=True)
        return 1
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    return 0


def _result(client: Client, args: argparse.Namespace, name: str) -> bytes:
    calls, run = client.calls, client.run
    match args.verb:
        case "create":
            run(calls.create(name))
        case "write":
            file = run(calls.open(args.names[1], write=True))
            run(calls.write(file, Path(name).read_bytes(), 0))
        case "read":
            file = run(calls.open(name))
            return run(calls.read(file, run(calls.stat(name)).size, 0))
        case "mkdir":
            run(calls.mkdir(name))
        case "ls":
            return b"".join(entry + b"\n" for entry in run(calls.listdir(name)))
        case "stat":
            found = run(calls.stat(name))
            mode = stat.filemode(found.mode)
            return f"{mode} {found.uid} {found.gid} {found.size} {name}\n".encode()
        case "rename":
            run(calls.rename(name, args.names[1]))
        case "remove":
            run(calls.unlink(name))
        case "rmdir":
            run(calls.rmdir(name))
    return b""


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


if __name__ == "__main__":
    sys.exit(main())
