"""Select the cases of each test that run by default, at random for each run, by their cost.

A plain ``pytest`` runs all tests, and so does ``tox -e full``. With ``PCIRCLE_TESTS_BUDGET_S``,
which ``tox`` and ``tox -e quick`` set, each test function runs as many of its cases as this
processor time in seconds allows, at least one; a function with a case that costs more than `DEAR`
times that does not run. The cases are drawn from a seed that the first lines of the output name, so
all of them run in the course of some days; ``PCIRCLE_TESTS_SEED`` repeats a selection. All cases of
tests marked ``always`` run: commands started as users start them, one for each tool and launcher.

`COSTS` has the processor time of a case of each test function that takes more than `CHEAP_S`. This
command measures and writes it, in the time of a full run::

    PCIRCLE_UPDATE_COSTS=1 pytest -n auto
"""

from __future__ import annotations

import json
import os
import random
import resource
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from tests import fork_server

DEAR = 4
CHEAP_S = 0.1
COSTS = Path(__file__).with_name("costs.json")
_before = pytest.StashKey[float]()
_PROPERTY = "processor time in seconds"
_measured: dict[str, list[float]] = defaultdict(list)


def budget_s() -> float | None:
    """Return the processor time that a test function may take; None to run all cases."""
    given = os.environ.get("PCIRCLE_TESTS_BUDGET_S")
    return float(given) if given else None


def pytest_configure() -> None:
    """Choose a seed before the workers of pytest-xdist start, because all must use the same."""
    if budget_s() is not None:
        os.environ.setdefault("PCIRCLE_TESTS_SEED", str(random.SystemRandom().randrange(10**6)))


def pytest_report_header() -> list[str]:
    """Name the seed."""
    if budget_s() is None:
        return []
    return [f"cases are drawn: PCIRCLE_TESTS_SEED={os.environ['PCIRCLE_TESTS_SEED']} repeats these"]


@pytest.hookimpl(trylast=True)  # behind -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the selected cases."""
    limit_s = budget_s()
    if limit_s is not None:
        seed = os.environ["PCIRCLE_TESTS_SEED"]
        selected = set(drawn([item.nodeid for item in items], seed, limit_s))
        selected |= {item.nodeid for item in items if item.get_closest_marker("always")}
        left = [item for item in items if item.nodeid not in selected]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.nodeid in selected]


def drawn(nodes: Sequence[str], seed: str, limit_s: float) -> Iterator[str]:
    """Select cases of each test function, independently of the order of `nodes`."""
    costs = json.loads(COSTS.read_text())
    by_function: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        by_function[function_of(node)].append(node)
    for function, cases in by_function.items():
        cost_s = costs.get(function, CHEAP_S)
        count = 0 if cost_s > DEAR * limit_s else max(1, int(limit_s / cost_s))
        # A seed per function: adding a test does not change the selection for other tests.
        source = random.Random(f"{seed} {function}")
        yield from source.sample(sorted(cases), min(count, len(cases)))


def function_of(node: str) -> str:
    """Return the test function of a case."""
    return node.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start to measure a case."""
    item.stash[_before] = _used_s()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Attach the cost of a case to its last report."""
    if call.when == "teardown":
        item.user_properties.append((_PROPERTY, _used_s() - item.stash[_before]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the cost of a case."""
    for name, value in report.user_properties:
        if name == _PROPERTY and isinstance(value, float):
            _measured[function_of(report.nodeid)].append(value)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table if requested; the entries of tests that did not run are unchanged."""
    if os.environ.get("PCIRCLE_UPDATE_COSTS") and not hasattr(session.config, "workerinput"):
        costs = json.loads(COSTS.read_text())
        costs |= {function: round(median(costs_s), 2) for function, costs_s in _measured.items()}
        dear = {function: cost for function, cost in costs.items() if cost > CHEAP_S}
        COSTS.write_text(json.dumps(dear, indent=0, sort_keys=True) + "\n")


def _used_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + fork_server.used_s()
