"""Record the terminal session of the README: `python -m docs.generate.terminal`.

A terminal (tmux, which must be installed) runs the tools on a tree of four gigabytes in memory. Its
screen becomes docs/terminal.svg, which follows the reader's light or dark theme. Times and rates
differ with each recording, so `python -m docs.generate` does not repeat it.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.terminal import Terminal, wait_for

TARGET = Path(__file__).resolve().parents[1] / "terminal.svg"
COLUMNS, LINES = 96, 30
SMALL_FILES, LARGE_FILES = 200_000, 100
PROMPT = "$"
INTERRUPTED = "fcp -a data backup"
SESSION = ("fcp --resume -a data backup", "fdiff -c data backup && echo equal", "fsum data backup")

_CELL_WIDTH, _LINE_HEIGHT, _MARGIN = 8.4, 19, 16
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img">
<title>fcp is interrupted and resumed; fdiff and fsum find both trees equal</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
fill: #1f2328; white-space: pre }}
rect {{ fill: #f6f8fa; stroke: #d1d9e0 }}
.bold {{ font-weight: bold }}
.dim {{ fill: #59636e }}
.red {{ fill: #cf222e }}
.green {{ fill: #1a7f37 }}
.yellow {{ fill: #9a6700 }}
.blue, .cyan, .magenta {{ fill: #0969da }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
rect {{ fill: #151b23; stroke: #3d444d }}
.dim {{ fill: #9198a1 }}
.red {{ fill: #f85149 }}
.green {{ fill: #3fb950 }}
.yellow {{ fill: #d29922 }}
.blue, .cyan, .magenta {{ fill: #4493f8 }}
}}
</style>
<rect x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
{lines}
</svg>
"""


def create_data(directory: Path) -> None:
    """Create the tree that the session copies."""
    for number in range(SMALL_FILES):
        parent = directory / f"runs/{number // 200}"
        if number % 200 == 0:
            parent.mkdir(parents=True)
        (parent / f"{number}.log").write_bytes(b"%d\n" % number * 300)
    block = os.urandom(1 << 20)
    for number in range(LARGE_FILES):
        with open(directory / f"samples-{number}.h5", "wb") as stream:
            for _ in range(32):
                stream.write(block)


def record(directory: Path) -> str:
    """Run the session in a directory that contains `data`; return the coloured screen."""
    changes = {"PS1": f"{PROMPT} ", "HOME": str(directory)}
    with Terminal(COLUMNS, LINES, changes) as terminal:

        def is_ready() -> bool:
            return terminal.screen().rstrip().endswith(f"\n{PROMPT}")

        terminal.type(f"cd {directory}; clear", "Enter")
        wait_for(lambda: terminal.screen().strip() == PROMPT, terminal.screen)
        terminal.type(INTERRUPTED, "Enter")
        wait_for(lambda: re.search(r"[3-8]\d\.\d%", terminal.screen()) is not None, terminal.screen)
        terminal.type("C-c")
        wait_for(is_ready, terminal.screen)
        for command in SESSION:
            terminal.type(command, "Enter")
            time.sleep(0.5)
            wait_for(is_ready, terminal.screen)
        return terminal.screen(joined=True, colored=True).replace(str(directory), "/scratch")


def _classes(style: str | Style) -> Iterator[str]:
    style = Style.parse(style) if isinstance(style, str) else style
    if style.bold:
        yield "bold"
    if style.dim:
        yield "dim"
    if style.color is not None:
        yield style.color.name.removeprefix("bright_")


def drawn(screen: str) -> str:
    """Return an SVG image of a screen with ANSI colours."""
    console = Console(width=COLUMNS)
    printed = Text.from_ansi(screen).split("\n")
    rows = [row for line in printed for row in line.wrap(console, COLUMNS)]
    while rows and not rows[-1].plain.strip(f"{PROMPT} "):
        rows.pop()
    lines = []
    for number, row in enumerate(rows):
        y = _MARGIN + _LINE_HEIGHT * number + 14
        bounds = sorted({0, len(row), *(at for span in row.spans for at in (span.start, span.end))})
        for start, end in pairwise(bounds):
            text = row.plain[start:end]
            if not text.strip():
                continue
            spans = [span for span in row.spans if span.start <= start and end <= span.end]
            names = dict.fromkeys(name for span in spans for name in _classes(span.style))
            if row.plain.startswith(f"{PROMPT} "):
                names["bold"] = None
            kind = f' class="{" ".join(names)}"' if names else ""
            x = _MARGIN + _CELL_WIDTH * start
            width = _CELL_WIDTH * len(text)
            lines.append(
                f'<text x="{x:.1f}" y="{y}" textLength="{width:.1f}"{kind}>{escape(text)}</text>'
            )
    width = round(COLUMNS * _CELL_WIDTH + 2 * _MARGIN)
    height = len(rows) * _LINE_HEIGHT + 2 * _MARGIN
    return _SVG.format(
        width=width,
        height=height,
        inner_width=width - 1,
        inner_height=height - 1,
        lines="\n".join(lines),
    )


def main() -> None:
    """Record the session and write the image."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        directory = Path(place)
        create_data(directory / "data")
        TARGET.write_text(drawn(record(directory)), encoding="utf-8")


if __name__ == "__main__":
    main()
