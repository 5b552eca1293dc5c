"""The programs that tests hold as text: which of their mistakes `tox -e types` finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import embedded

TEST = '''
PROGRAM = """
    import sys
    from pcircle.core import units
    {call}
"""
WORDS = "import nothing at all"
'''


def test_programs_are_found_in_the_source_of_a_test() -> None:
    text = TEST.format(call="sys.exit(3)")
    assert list(embedded.programs(text)) == [
        (2, "\nimport sys\nfrom pcircle.core import units\nsys.exit(3)\n")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("print(units.parse_size('1k'))", ""),
        ("print(units.no_such_name)", "no_such_name"),
        ("print(units.parse_size())", "Missing positional argument"),
    ],
)
def test_a_wrong_name_or_argument_is_a_mistake(
    call: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "test_some.py").write_text(TEST.format(call=call))
    assert embedded.main(tmp_path) == bool(message)
    assert message in capfd.readouterr().out
