"""Check the types of the programs that tests hold as text.

Some tests start another Python with a program of theirs. Neither mypy nor a rename sees such a
text, so it used to break when the product changed. `python -m tests.embedded` writes each one into
a file and runs mypy on these files. A text with values to be filled in, which does not parse as it
stands, is left out.
"""

import ast
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

# These programs replace functions by their own and are filled in with names; what must hold is that
# imported modules, the names in them and the arguments of calls exist.
OPTIONS = """
[mypy]
check_untyped_defs = True
ignore_missing_imports = True
cache_dir = .mypy_cache/embedded
disable_error_code = arg-type, assignment, method-assign, misc, name-defined, operator,
    union-attr, var-annotated
"""


def programs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the dedented source of each program within the source of a module."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        program = textwrap.dedent(node.value)
        try:
            parsed = ast.parse(program)
        except (SyntaxError, UnicodeEncodeError):
            continue
        nodes = [part for part in ast.walk(parsed) if isinstance(part, ast.Import | ast.ImportFrom)]
        # A relative import belongs to a module that a test puts into a package.
        if nodes and not any(getattr(part, "level", 0) for part in nodes):
            yield node.lineno, program


def main(tests: Path = TESTS) -> int:
    """Return the exit code of mypy for the programs in the modules of a directory."""
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(tests.rglob("*.py")):
            stem = "_".join(path.relative_to(tests).with_suffix("").parts)
            for line, program in programs(path.read_text()):
                Path(folder, f"{stem}_line_{line}.py").write_text(program)
        settings = Path(folder, "settings.ini")
        settings.write_text(OPTIONS)
        command = ["mypy", f"--config-file={settings}", "--scripts-are-modules", folder]
        return subprocess.run([sys.executable, "-m", *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
