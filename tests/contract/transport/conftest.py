"""The transports of the contract suite, and a fixture for jobs on each of them.

``BINDINGS`` is the list. A test is decorated with ``@on_every(1, 2, 8)`` or ``@on_real(...)`` with
the numbers of ranks, takes the fixture ``job``, and calls ``job.run(body, *arguments)``, which
returns the results of the ranks, in order.
"""

from __future__ import annotations

import pytest

from tests.contract.transport.jobs import BINDINGS, Job


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Job:
    name, size = request.param
    return Job(BINDINGS[name], size, request)
