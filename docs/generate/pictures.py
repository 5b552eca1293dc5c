"""Draw the pictures of the explanation pages in a common style.

Each picture has a light background of its own, so it is readable in a dark theme as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

_STYLE = """\
text { font: 14px sans-serif; fill: #1e293b }
.head { font-weight: bold }
.small { font-size: 12px; fill: #475569 }
.code { font-family: monospace }
.white { fill: #ffffff; font-weight: bold }
"""
_FILLS = {
    "plain": ("#f1f5f9", "#64748b"),
    "blue": ("#dbeafe", "#1d4ed8"),
    "green": ("#dcfce7", "#15803d"),
    "amber": ("#fef3c7", "#b45309"),
    "red": ("#fee2e2", "#b91c1c"),
}


class Picture:
    """An SVG image made of shapes."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._shapes: list[str] = []

    def text(self, x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> None:
        """Add a line of text at a point of its baseline."""
        self._shapes.append(
            f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(self, x: int, y: int, width: int, text: str, fill: str = "plain") -> None:
        """Add a box with centred text."""
        inner, edge = _FILLS[fill]
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="28" rx="4" '
            f'fill="{inner}" stroke="{edge}"/>'
        )
        self.text(x + width // 2, y + 19, text, anchor="middle")

    def line(self, *points: int, arrow: bool = True, dashed: bool = False) -> None:
        """Add a line through points, with an arrow at its end."""
        places = " ".join(f"{x},{y}" for x, y in zip(points[::2], points[1::2], strict=True))
        more = ' marker-end="url(#arrow)"' * arrow + ' stroke-dasharray="4 3"' * dashed
        self._shapes.append(f'<polyline points="{places}" fill="none" stroke="#475569"{more}/>')

    def whole(self) -> str:
        """Return the whole file."""
        width, height = self._size
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">\n<title>{escape(self._title)}</title>\n'
            f"<style>\n{_STYLE}</style>\n"
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#475569"/></marker>'
            f'</defs>\n<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n'
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )


def stealing() -> Picture:
    """Draw two ranks in a small tree at four moments."""
    picture = Picture(720, 420, "Two ranks share the walk of a tree")
    moments = (
        ("1", "Rank 0 lists the root and finds a, b, c.", "lists /", "a b c", "", "", 0),
        ("2", "Rank 1 is idle. It gets the older half.", "lists c", "b", "lists a", "", 1),
        ("3", "Both continue with their newest, depth first.", "lists c/x", "b c/y", "lists a/x",
         "a/y", 0),
        ("4", "Rank 1 is idle again: it steals the oldest item.", "copies c/y", "", "lists b",
         "", 1),
    )  # fmt: skip
    for place, (number, text, work0, queue0, work1, queue1, moved) in enumerate(moments):
        y = 20 + 100 * place
        picture.text(16, y + 14, f"{number}.", "head")
        picture.text(40, y + 14, text)
        for x, rank, work, queue in ((40, 0, work0, queue0), (400, 1, work1, queue1)):
            picture.text(x, y + 52, f"rank {rank}", "small")
            for nth, item in enumerate(queue.split()):
                picture.box(x + 52 + 52 * nth, y + 32, 46, item, "blue")
            picture.box(x + 212, y + 32, 92, work or "idle", "green" if work else "plain")
        if moved:
            picture.line(352, y + 46, 392, y + 46)
        if not place:
            picture.text(92, y + 78, "oldest: given away first", "small")
            picture.text(252, y + 78, "newest: done next", "small")
    return picture


def joins() -> Picture:
    """Draw how the completion of a directory is detected."""
    picture = Picture(720, 300, "A directory is complete when all its entries are")
    columns = (
        ("1. a is listed", "a: 2 open", "blue", "a/x: 3 open", "blue", "a/y: waits", "plain"),
        ("2. a/y is done elsewhere", "a: 1 open", "blue", "a/x: 3 open", "blue",
         "a/y: done", "green"),
        ("3. the last f is done", "a: done", "green", "a/x: done", "green",
         "a/y: done", "green"),
    )  # fmt: skip
    for place, (text, top, color, left, color1, right, color2) in enumerate(columns):
        x = 16 + 238 * place
        picture.text(x, 28, text, "head")
        picture.box(x + 50, 52, 110, top, color)
        picture.line(x + 90, 80, x + 50, 124, arrow=False)
        picture.line(x + 120, 80, x + 160, 124, arrow=False)
        picture.box(x, 124, 102, left, color1)
        picture.box(x + 112, 124, 102, right, color2)
        for nth in range(3):
            picture.line(x + 50, 152, x + 16 + 34 * nth, 192, arrow=False)
            done = place == 2 or (place == 1 and nth < 0)
            picture.box(x + 2 + 34 * nth, 192, 28, "f", "green" if done else "plain")
    picture.text(
        16, 256, "The rank that completes the last part of a directory finishes it at once:", ""
    )
    picture.text(16, 278, "it sets the times and passes the result to the parent. No second pass.")
    return picture


def waves() -> Picture:
    """Draw three waves of the four counters."""
    picture = Picture(720, 250, "The end is found by counting messages")
    heads = ("wave", "rank 0", "rank 1", "rank 2", "sums", "conclusion")
    rows = (
        ("1", "sent 4, got 1", "sent 1, got 3", "sent 1, got 1", "6 sent, 5 got",
         "one is in flight", "red"),
        ("2", "sent 4, got 1", "sent 1, got 4", "sent 1, got 1", "6 sent, 6 got",
         "repeat to confirm", "amber"),
        ("3", "sent 4, got 1", "sent 1, got 4", "sent 1, got 1", "6 sent, 6 got",
         "nothing is left: end", "green"),
    )  # fmt: skip
    at = (16, 70, 182, 294, 406, 520)
    for x, head in zip(at, heads, strict=True):
        picture.text(x, 30, head, "head")
    for nth, row in enumerate(rows):
        y = 66 + 50 * nth
        for x, text in zip(at, row[:5], strict=False):
            picture.text(x, y, text)
        picture.box(512, y - 19, 192, row[5], row[6])
    picture.text(
        16, 214, "Each rank reports only when it is idle. If two waves in a row have equal"
    )
    picture.text(
        16, 236, "and unchanged sums, no rank worked in between, and no message was in flight."
    )
    return picture


def naming() -> Picture:
    """Draw how a copy gets its name."""
    picture = Picture(720, 190, "A file appears under its name when it is complete")
    steps = (
        ("old file", "blue"), ("old file", "blue"), ("old file", "blue"), ("new file", "green"),
    )  # fmt: skip
    heads = ("before", "content is written", "attributes are set", "renamed")
    picture.text(16, 92, "dst/name", "code")
    picture.text(16, 142, "dst/.fcp-…", "code")
    for nth, ((name, fill), head) in enumerate(zip(steps, heads, strict=True)):
        x = 120 + 150 * nth
        picture.text(x, 36, head, "head")
        picture.box(x, 72, 120, name, fill)
        if nth in (1, 2):
            picture.box(x, 122, 120, "new file", "amber")
        if nth < 3:
            picture.line(x + 122, 86, x + 148, 86)
    picture.line(540, 136, 630, 136, 630, 104)
    picture.text(
        16,
        178,
        "Opening dst/name at any moment yields the whole old file or the whole new one.",
    )
    return picture


def epochs() -> Picture:
    """Draw the commits of two ranks, a crash, and the repeated work."""
    picture = Picture(720, 320, "The cost of a crash")
    for nth, y in ((0, 56), (1, 132)):
        picture.text(16, y + 19, f"rank {nth}")
        picture.box(80, y, 180, "work of epoch 1", "blue")
        picture.box(262, y, 200, "work of epoch 2", "blue")
        picture.box(464, y, 150, "epoch 3", "red")
        for x in (262, 464):
            picture.box(x, y + 32, 60 + 20 * nth, "flush", "amber")
    picture.text(80, 34, "time", "small")
    picture.line(112, 30, 700, 30)
    for x, text in ((344, "commit 1"), (546, "commit 2")):
        picture.line(x, 44, x, 204, arrow=False, dashed=True)
        picture.text(x, 222, text, "head", "middle")
    picture.line(616, 44, 616, 204, arrow=False)
    picture.text(616, 222, "crash", "head", "middle")
    picture.text(
        16, 258, "An epoch is committed when all ranks have flushed their work of it to disk."
    )
    picture.text(
        16, 280, "--resume trusts committed work and repeats the remainder, shown here in red:"
    )
    picture.text(16, 302, "about a minute's work. The same files are written again.")
    return picture


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    for make in (stealing, joins, waves, naming, epochs):
        yield f"docs/explanation/{make.__name__}.svg", make().whole()
