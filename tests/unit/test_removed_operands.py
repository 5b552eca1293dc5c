"""Removal of operands, in this process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pcircle import remove
from pcircle.fs.directories import Directories
from pcircle.jobs.action_log import ActionLog
from pcircle.ops.remove.remover import Remover


def test_operand_in_a_replaced_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operand = tmp_path / "operand"
    operand.touch()
    another = (0, 0)  # the identity of the directory that was found first
    monkeypatch.setattr(Remover, "_holder", lambda *_: another)
    result = remove(str(operand))
    assert (result.exit_code, len(result.failures), operand.exists()) == (1, 1, True)


def test_lines_of_a_plan_are_recorded_only_for_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()
    planned: list[bytes] = []
    monkeypatch.setattr(ActionLog, "planned", lambda _, line: planned.append(line))
    remove(str(tmp_path / "tree"), plan=str(tmp_path / "plan"), recursive=True, jobs=1)
    assert len(planned) == 2
    remove(str(tmp_path / "tree"), json_lines=str(tmp_path / "lines"), recursive=True, jobs=1)
    assert len(planned) == 2


def test_operand_vanishes_with_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operand = tmp_path / "operand"
    operand.touch()

    def vanished(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(Directories, "lease", vanished)
    result = remove(str(operand))
    assert (result.counts["vanished"], result.counts["failed"], result.exit_code) == (1, 0, 0)
