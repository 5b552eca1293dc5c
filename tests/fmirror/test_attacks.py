"""A user who swaps what root mirrors for links gets nothing; see `attacks`.

Some thousand swaps here, as many as one likes by ``tox -e attack-fmirror``. And a mirror that
follows links is caught by the same rounds, so they can tell.
"""

from __future__ import annotations

import os

import pytest

from tests.fcp import kills
from tests.fcp.test_attacks import FOLLOWING

from . import attacks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root is worth attacking")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_escapes(seed: int, place: bytes) -> None:
    played = attacks.play(place, seed, kills.LOCAL)
    assert played.escapes == []
    assert played.swaps > 100


def test_a_mirror_that_follows_links_is_caught(place: bytes) -> None:
    assert any(attacks.play(place, seed, kills.LOCAL, FOLLOWING).escapes for seed in range(40))
