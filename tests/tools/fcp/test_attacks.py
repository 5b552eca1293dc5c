"""A user who swaps entries for links while root copies gains nothing; see `attacks`.

There are some thousand swaps here, and any number with ``tox -e attack``. The same rounds detect a
copier that follows links, which validates them.
"""

from __future__ import annotations

import os

import pytest

from . import attacks, kills

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root is worth attacking")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_escapes(seed: int, place: bytes) -> None:
    played = attacks.play(place, seed, kills.LOCAL)
    assert played.escapes == []
    assert played.swaps > 100


def test_nothing_escapes_under_mpi(place: bytes) -> None:
    played = attacks.play(place, 100, kills.LAUNCHERS[-2:])
    assert played.escapes == []


def test_a_copier_that_follows_links_is_caught(place: bytes) -> None:
    """It is detected in some of a few rounds, because races depend on luck."""
    for seed in range(25):
        if attacks.play(place, seed, kills.LOCAL, attacks.FOLLOWING).escapes:
            return
    pytest.fail("the attacks never succeed, whatever they attack")
