"""`--plan` writes the actions of a dry run to a file; `--apply` carries out those and no others.

The file is a plan as defined in `pcircle.jobs.plan_file`, with the marks defined in
`pcircle.tools.fmirror.work.steps`. Its first line contains A and B, their identities, and the
options that affect individual actions. These options also apply when the plan is carried out.
Filters and lists do not, because the plan already reflects them.

As in any mirror, each extraneous entry is first looked up in the source again. It is removed only
if the source still lacks it and the plan lists it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.directories import working_directory
from pcircle.fs.sorting import sorted_records
from pcircle.jobs.failures import decode, encode
from pcircle.jobs.plan_file import LoadedPlan, PlanTrailer, head, read_plan
from pcircle.tools.fmirror.options import MirrorOptions
from pcircle.tools.fmirror.work import steps
from pcircle.walk.roots import Root

_PATHS = ("copy_dest", "link_dest", "reflink_dest")
_SEPARATOR = b"\0\0"


def refuse_within(option: str, path: str, *trees: bytes) -> None:
    """Raise UsageError if an output file would lie in one of these trees."""
    above = os.path.realpath(os.path.dirname(os.fsencode(path)) or b".")
    for tree in trees:
        if os.path.join(above, b"").startswith(os.path.join(os.path.realpath(tree), b"")):
            raise UsageError(f"{option}: '{show(os.fsencode(path))}' is inside '{show(tree)}'")


def _recorded() -> list[str]:
    """Return the options that a plan records because they affect its actions."""
    return sorted(found.dest for _, found in MirrorOptions.offered() if found.recorded)


# ---- writing -----------------------------------------------------------------------------------


def begun(args: argparse.Namespace, paths: Sequence[bytes], known_by: Sequence[str]) -> bytes:
    """Return the first line of a plan: A and B, their identities and the recorded options."""
    options = {name: _encoded(getattr(args, name)) for name in _recorded()}
    if args.state_dir is not None:
        options["state_dir"] = _encoded(os.path.abspath(args.state_dir))
    for name in _PATHS:
        options[name] = _encoded([os.path.abspath(tree) for tree in getattr(args, name) or []])
    more = {"known by": list(known_by), "options": options}
    roots = [Root(path, b"", path) for path in paths]
    return head("fmirror", roots, working_directory(), more)


def _encoded(value: object) -> object:
    if isinstance(value, list):
        return list(map(_encoded, value))
    return encode(os.fsencode(value)) if isinstance(value, str) else value


def _decoded(value: object) -> object:
    if isinstance(value, list):
        return list(map(_decoded, value))
    return os.fsdecode(decode(value)) if isinstance(value, str) else value


# ---- carrying it out ---------------------------------------------------------------------------


def planned(args: argparse.Namespace) -> tuple[LoadedPlan, argparse.Namespace]:
    """Return the plan, and the given options merged with those that the plan records.

    Raise UsageError if the plan is invalid.
    """
    found = read_plan(args.apply, "fmirror", steps.check_mark)
    try:
        roots = [os.path.join(found.directory, root.shown) for root in found.roots]
        options = {name: _decoded(found.more["options"][name]) for name in _recorded()}
        if len(roots) != 2 or len(found.more["known by"]) != 2:
            raise ValueError("it does not name two directories")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = show(os.fsencode(args.apply))
        raise UsageError(f"--apply: '{shown}' is not a plan for fmirror: {error}") from None
    operands = list(map(os.fsdecode, roots))
    more = {"operands": operands, "planned": True}
    return found, argparse.Namespace(**vars(args) | options | more)


def refuse_others(plan: LoadedPlan, paths: Sequence[bytes], known_by: Sequence[str]) -> None:
    """Raise UsageError if A or B is not the directory for which the plan was made."""
    for path, known, now in zip(paths, plan.more["known by"], known_by, strict=True):
        if known not in (now, "-"):
            raise UsageError(f"--apply: '{show(path)}' is not the directory that the plan is for")


def removals(
    plan: LoadedPlan, paths: Iterable[bytes], replaced: Mapping[bytes, bytes]
) -> LoadedPlan:
    """Return the planned removals at or below these paths.

    `replaced` maps the present path of each replaced directory to its path in the plan.
    """
    from pcircle.fs.lists import sort  # few runs carry out a plan

    count = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for record in _below(plan, paths, replaced):
            count += 1
            yield record

    lists = sort([(0, counted())])
    return LoadedPlan((), working_directory(), (b"",), lists, PlanTrailer(count, plan.tail.found))


def _below(
    plan: LoadedPlan, paths: Iterable[bytes], replaced: Mapping[bytes, bytes]
) -> Iterator[bytes]:
    """Yield the records of the planned removals at or below these paths, in sorted order."""
    from pcircle.fs.lists import record_of  # few runs carry out a plan

    tops = (record_of(replaced.get(path, path)) + _SEPARATOR + record_of(path) for path in paths)
    ordered = sorted_records(tops)
    was = now = None
    lists = plan.lists
    for part in lists.parts:
        if part.root != 1 or part.listed is None:
            continue
        for record in lists.records(part.listed):
            while was is None or (was + b"\0" < record and not record.startswith(was + b"\0")):
                top = next(ordered, None)
                if top is None:
                    return
                was, _, now = top.partition(_SEPARATOR)
            if now is not None and record.startswith(was + b"\0"):
                yield now + record[len(was) :]
