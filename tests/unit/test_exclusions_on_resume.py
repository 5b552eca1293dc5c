"""What a resumed copy leaves out: completed names of a list, and the checkpoint itself."""

from __future__ import annotations

import os

from pcircle.fs.scan import Block
from pcircle.ops.checkpoint.journal import NamesRecord
from pcircle.ops.checkpoint.previous_records import (
    CompletedNames,
    exclude_checkpoint,
    exclude_completed_from_list,
)
from pcircle.ops.checkpoint.store import Checkpoint
from tests.unit.checkpoints import KEYS, checkpoint

__all__ = ["checkpoint"]  # a fixture


def test_completed_names_are_left_out_of_a_list() -> None:
    """All other names remain, the first one too, with everything listed below them."""
    done = CompletedNames()
    done.add([NamesRecord(KEYS.directory(0, b""), KEYS.names([b"three"]), {}, 1)])
    text = b"one/three/two\0below/two\0more/"
    assert exclude_completed_from_list(text, done, KEYS) == b"one/two\0below/two\0more/"
    done.add([NamesRecord(KEYS.directory(0, b""), KEYS.names([b"one"]), {}, 2)])
    assert exclude_completed_from_list(text, done, KEYS) == b"two\0below/two\0more/"


def test_only_the_checkpoint_is_left_out_of_a_directory(checkpoint: Checkpoint) -> None:
    """A directory of the same name elsewhere is an entry like any other."""
    above, name = os.path.split(checkpoint.path)
    elsewhere = os.path.join(above, b"elsewhere")
    os.makedirs(os.path.join(elsewhere, name))
    for directory, expected in ((above, ["elsewhere"]), (elsewhere, [os.fsdecode(name)])):
        block = Block()
        block.directories = [os.fsdecode(entry) for entry in os.listdir(directory)]
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (found,) = exclude_checkpoint([block], fd, checkpoint.path)
        finally:
            os.close(fd)
        assert found.directories == expected


def test_hashes_are_recognized_as_those_of_the_names_in_any_order() -> None:
    """Not of other names, nor of more or fewer."""
    names = [b"one", b"two", b"three"]
    hashes = KEYS.names([b"three", b"one", b"two"])
    assert KEYS.are_of(names, hashes) is True
    for others in ([b"one", b"two", b"four"], [*names, b"four"], names[:2]):
        assert KEYS.are_of(others, hashes) is False
