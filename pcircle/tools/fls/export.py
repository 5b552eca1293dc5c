"""Rows in a file, as JSON, CSV or Parquet; the file is written completely or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli.results import Results
from pcircle.cli.tree_program import TreeReport
from pcircle.core.errors import UsageError
from pcircle.core.optional_packages import try_out
from pcircle.tools.fls.rows import NAMES, ListRow

_TRIAL = """
import io, pyarrow, pyarrow.json, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), io.BytesIO())
"""
Pieces = Callable[[Iterator[bytes], jsonout.JsonDocument], Iterator[bytes]]
"""A function that formats rows and the report as a file, in pieces."""
_GROUP_BYTES = 8 << 20
"""The size of the text of rows in a row group of Parquet."""


class ListReport(TreeReport, frozen=True):
    """The result for programs: the common report, and the entries in order."""

    entries: tuple[ListRow, ...]


class RowResults(Results):
    """Writes the rows that `rows` yields, after the job has ended."""

    def __init__(
        self,
        note: Callable[[str], None],
        where: str,
        pieces: Pieces,
        rows: Callable[[], Iterator[bytes]],
    ) -> None:
        super().__init__("fls", where, note)
        self._where, self._pieces, self._rows = where, pieces, rows

    def document(self, document: jsonout.JsonDocument) -> None:
        whole = self._pieces(self._rows(), document)
        where = "standard output" if self._where == "-" else self._where
        self.write(where, partial(jsonout.stream, whole, self._where))


def as_json(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Return a JSON document: first the entries, then the report."""
    yield b'{"entries": ['
    gap = b"\n"
    for text in rows:
        if text:
            yield gap + text[:-1].replace(b"\n", b",\n")
            gap = b",\n"
    yield b"\n],\n" + jsonout.encode(report).lstrip(b"{\n")


def as_csv(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Return CSV, with column names in the first line."""
    yield ",".join(NAMES).encode() + b"\n"
    yield from rows


def of_rows(rows: Iterable[bytes]) -> tuple[ListRow, ...]:
    """Return rows as objects for programs."""
    decode = msgspec.json.Decoder(ListRow).decode
    return tuple(decode(line) for text in rows for line in text.splitlines())


class _Pieces:
    """A file object that collects the output of the Parquet writer."""

    closed = False

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._at = 0

    def write(self, data: bytes) -> int:
        """Add data."""
        self._chunks.append(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._at

    def flush(self) -> None:
        """Do nothing: no data is buffered."""

    def close(self) -> None:
        """Do nothing: the caller takes the data."""

    def taken(self) -> bytes:
        """Return the data written since the last call."""
        pieces, self._chunks = self._chunks, []
        return b"".join(pieces)


def check_arrow() -> None:
    """Raise UsageError if pyarrow is not usable."""
    try:
        try_out("pyarrow", _TRIAL)
    except ImportError as error:
        raise UsageError(f"--parquet: {error}; pip install 'pcircle[parquet]'") from None


_LARGE_TIME = re.compile(rb'("[acm]time_ns":)(-?(?:9\d{18}|\d{20,}))')


def _without_large_times(text: bytes) -> bytes:
    """Replace times in JSON rows by null if 64 bits of nanoseconds cannot hold them."""

    def shorten(found: re.Match[bytes]) -> bytes:
        fits = -(1 << 63) <= int(found[2]) < 1 << 63
        return found[0] if fits else found[1] + b"null"

    return _LARGE_TIME.sub(shorten, text)


def as_parquet(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Yield a Parquet file, with a column for each field and thousands of rows in a group."""
    arrow, json, parquet = map(import_module, ("pyarrow", "pyarrow.json", "pyarrow.parquet"))
    schema = _schema(arrow)
    options = json.ParseOptions(
        explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
    )
    written = _Pieces()
    with parquet.ParquetWriter(written, schema, compression="zstd") as writer:
        for text in map(_without_large_times, together(rows, _GROUP_BYTES)):
            reader = arrow.BufferReader(text)
            block = json.ReadOptions(block_size=len(text) + 1)
            table = json.read_json(reader, block, options)
            writer.write_table(table.select(schema.names).cast(schema))
            yield written.taken()
    yield written.taken()


def _schema(arrow: Any) -> Any:
    types = {
        int: arrow.int64(),
        str: arrow.string(),
        str | None: arrow.string(),
        int | None: arrow.int64(),
        tuple[str, ...]: arrow.list_(arrow.string()),
    }
    large = {"inode", "device", "rdev"}
    fields = msgspec.structs.fields(ListRow)
    return arrow.schema(
        [(f.name, arrow.uint64() if f.name in large else types[f.type]) for f in fields]
    )


def together(texts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield texts joined into pieces of about this size."""
    batch: list[bytes] = []
    held = 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= size:
            yield b"".join(batch)
            batch, held = [], 0
    if held:
        yield b"".join(batch)
