"""Each rank of a removal logs what it removes next, so that the loss of a rank loses no count."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import Run

PROGRAM = """
import sys
from pcircle.ops.remove.removal_log import ThreadLog
path, write = sys.argv.pop(1), ThreadLog.write
def noted(self, counts, kind, root, path_below, names):
    with open(path, "ab") as notes:
        notes.write(b"".join(name.replace(b"\\0", b"\\n") + b"\\n" for name in names))
    write(self, counts, kind, root, path_below, names)
ThreadLog.write = noted
from pcircle.tools.frm.cli import main
sys.exit(main())
"""


def test_all_removed_names_are_logged(run: Run, tmp_path: Path) -> None:
    """The names of files, links and directories are in the log of a removal by two ranks."""
    tree, notes, names = tmp_path / "tree", tmp_path / "notes", {"tree"}
    for number in range(3):
        directory = tree / f"d{number}" / f"e{number}"
        directory.mkdir(parents=True)
        (directory / f"file{number}").touch()
        (directory.parent / f"link{number}").symlink_to("nowhere")
        names |= {f"{kind}{number}" for kind in ("d", "e", "file", "link")}
    done = run([sys.executable, "-c", PROGRAM, str(notes), "-j2", "-q", "-r", str(tree)])
    assert (done.returncode, done.stderr) == (0, b"")
    assert not tree.exists()
    assert set(notes.read_text().split()) == names
