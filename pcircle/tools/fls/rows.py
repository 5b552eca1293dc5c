"""Output for programs: one row for each entry, in a JSON, CSV or Parquet file.

`RowFormatter` formats each row as a line of JSON or CSV on the rank that looked up the entry. Rank
0 writes the file; it appears only when it is complete.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from pcircle.cli import json_output as jsonout
from pcircle.cli.listing import Owners, groups, users
from pcircle.cli.program import TreeReport
from pcircle.cli.results import Results, report_to_caller
from pcircle.core.encoding import attributes
from pcircle.core.errors import UsageError
from pcircle.core.optional_packages import try_out
from pcircle.fs.attributes import lustre
from pcircle.fs.attributes.acls import ACCESS, read_list, short_form
from pcircle.fs.attributes.mounts import type_of_device
from pcircle.fs.entry_errors import Changed
from pcircle.fs.open_flags import OPEN_FILE
from pcircle.tools.fls.fields import StatBatch
from pcircle.tools.fls.plan import Form, kind_of

if TYPE_CHECKING:
    from pcircle.ops.digest import Signer


_LUSTRE = b"lustre"


class ListRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row of an entry. Names and link targets that are not UTF-8 are encoded in base64.

    `kind` is a letter of ``find -type``. Times are in nanoseconds since the epoch, and `blocks`
    counts units of 512 bytes. `acl`, `context` and `signature` are set on request; `stripe_count`,
    `stripe_bytes` and `pool` are set on Lustre.
    """

    path: str | None
    kind: str
    mode: int
    links: int
    uid: int
    gid: int
    owner: str
    group: str
    size: int
    blocks: int
    block_size: int
    inode: int
    device: int
    rdev: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    path_b64: str | None = None
    target: str | None = None
    target_b64: str | None = None
    xattrs: tuple[str, ...] = ()
    acl: str | None = None
    context: str | None = None
    stripe_count: int | None = None
    stripe_bytes: int | None = None
    pool: str | None = None
    signature: str | None = None

    def __fspath__(self) -> str:
        """Return the path of the entry, so that a row can be passed to `open`."""
        if self.path is not None:
            return self.path
        return os.fsdecode(b64decode(self.path_b64 or ""))


class RowExtras(TypedDict, total=False):
    """The fields of a row that require system calls in addition to the look-up."""

    target: str | None
    target_b64: str | None
    xattrs: tuple[str, ...]
    acl: str | None
    context: str | None
    stripe_count: int | None
    stripe_bytes: int | None
    pool: str | None
    signature: str | None


NAMES = ListRow.__struct_fields__
_MARKED = re.compile('[,"\r\n]').search


def coded(name: bytes) -> tuple[str | None, str | None]:
    """Return a name as a pair of text and base64, one of which is None."""
    try:
        return name.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(name).decode()


class _Texts(dict[int, str]):
    """A cache of the names of users or groups as text."""

    def __init__(self, owners: Owners) -> None:
        super().__init__()
        self._owners = owners

    def __missing__(self, number: int) -> str:
        text = self[number] = self._owners[number].decode(errors="replace")
        return text


class RowFormatter:
    """Formats rows, each with a newline. `failed` lists the entries that could not be read."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._users, self._groups = _Texts(users()), _Texts(groups())
        self._encode = msgspec.json.Encoder().encode if form.shape == "json" else csv_line
        self._lustre: dict[int, bool] = {}
        self.failed: list[tuple[int, OSError]] = []
        self.is_stopping: Callable[[], bool] = bool
        self._signer: Signer | None = None

    def of(self, looked: StatBatch) -> list[bytes]:
        """Return the row of each entry, in order; the rows of failed entries are empty."""
        stats, count = looked.stats, len(looked.names)
        columns = [
            looked.column(name)
            for name in ("mode", "links", "uid", "gid", "size", "blocks", "block_size", "inode")
        ]
        columns += [stats.column("device", 0, count), stats.column("rdev", 0, count)]
        columns += [stats.times_ns(name, 0, count) for name in ("atime", "mtime", "ctime")]
        more: list[RowExtras] = [{} for _ in range(count)]
        self.failed = []

        def ask(start: int, stop: int) -> None:
            for place in range(start, stop):
                if place not in looked.failed:
                    try:
                        name = looked.names[place]
                        more[place] = self._more(looked, name, columns[0][place], columns[8][place])
                    except OSError as error:
                        self.failed.append((place, error))

        if self._form.digest:
            ask(0, count)  # one after the other, because the files share a signer
        else:
            stats.beside(ask, 0, count)
        above = os.path.join(looked.shown, b"")
        without = {*looked.failed, *(place for place, _ in self.failed)}
        return [
            b""
            if place in without
            else self._row(above + looked.printed[place], values, more[place])
            for place, values in enumerate(zip(*columns, strict=True))
        ]

    def _row(self, path: bytes, values: Sequence[int], more: RowExtras) -> bytes:
        mode, links, uid, gid, size, blocks, block_size, inode, device, rdev, *times = values
        text, in_base64 = coded(path)
        row = ListRow(
            text,
            kind_of(mode).decode(),
            *(mode, links, uid, gid),
            *(self._users[uid], self._groups[gid]),
            *(size, blocks, block_size, inode, device, rdev),
            *(times[0], times[1], times[2]),
            in_base64,
            **more,
        )
        return self._encode(row) + b"\n"

    def _more(self, looked: StatBatch, name: bytes, mode: int, device: int) -> RowExtras:
        """Return the fields that require further calls. Raise OSError if a file cannot be read."""
        form = self._form
        more: RowExtras = {}
        path = b"/proc/self/fd/%d/%b" % (looked.fd, name)
        if stat.S_ISLNK(mode):
            more["target"], more["target_b64"] = coded(os.readlink(name, dir_fd=looked.fd))
        try:
            names = attributes(path, follow=False)
        except OSError:  # the file system has no extended attributes
            names = []
        if names:
            more["xattrs"] = tuple(sorted(map(_text, names)))
        if form.acl and not stat.S_ISLNK(mode):
            with suppress(OSError):
                value = read_list(path, ACCESS, follow=False)
                more["acl"] = None if value is None else short_form(value)
        if form.context:
            with suppress(OSError):
                context = os.getxattr(path, "security.selinux", follow_symlinks=False)
                more["context"] = context.rstrip(b"\0").decode(errors="replace")
        if self._is_lustre(device) and stat.S_ISREG(mode):
            more |= layout_of(path)
        if form.digest and stat.S_ISREG(mode):
            more["signature"] = self._signature(name, looked.fd)
        return more

    def _signature(self, name: bytes, directory_fd: int) -> str:
        """Return the signature of a file, as printed by fsum.

        Raise OSError if the file cannot be read or if the job is stopping.
        """
        from pcircle.ops.digest import Signer, format_signature  # few listings contain signatures
        from pcircle.ops.digest.digests import DEFAULT

        signer = self._signer = self._signer or Signer(DEFAULT, b"")
        fd = os.open(name, OPEN_FILE, dir_fd=directory_fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Changed("it is no longer a regular file")
            signer.read_file(fd, self.is_stopping)
        finally:
            os.close(fd)
        return format_signature(signer.algorithm, signer.seal[1:])

    def _is_lustre(self, device: int) -> bool:
        if device not in self._lustre:
            self._lustre[device] = type_of_device(device) == _LUSTRE
        return self._lustre[device]


def _text(name: str) -> str:
    return os.fsencode(name).decode(errors="backslashreplace")


def layout_of(path: bytes) -> RowExtras:
    """Return the Lustre layout of a file; in a composite layout, that of the last component."""
    with suppress(OSError, ValueError, IndexError):  # no layout, or a layout of unknown format
        value = lustre.read_layout(path)
        if value is not None:
            layout = lustre.parse(value)
            if isinstance(layout, lustre.Composite):
                plain = [part.stripes for part in layout.components if part.stripes is not None]
                layout = plain[-1]
            return {
                "stripe_count": layout.count,
                "stripe_bytes": layout.stripe_bytes,
                "pool": layout.pool.decode(errors="replace") or None,
            }
    return {}


_NUMBERS = ",".join(["%d"] * 4 + ["%s"] * 2 + ["%d"] * 9)


def csv_line(row: ListRow) -> bytes:
    """Return a row as CSV, with extended attributes as one space-separated field."""
    numbers = _NUMBERS % (
        *(row.mode, row.links, row.uid, row.gid, _quoted(row.owner), _quoted(row.group)),
        *(row.size, row.blocks, row.block_size, row.inode, row.device, row.rdev),
        *(row.atime_ns, row.mtime_ns, row.ctime_ns),
    )
    xattrs = " ".join(xattr.replace("\\", r"\\").replace(" ", r"\x20") for xattr in row.xattrs)
    texts = (row.path_b64, row.target, row.target_b64, xattrs or None, row.acl, row.context)
    layout = (row.stripe_count, row.stripe_bytes, row.pool, row.signature)
    more = ",".join(["" if value is None else _quoted(str(value)) for value in (*texts, *layout)])
    return f"{_quoted(row.path or '')},{row.kind},{numbers},{more}".encode()


def _quoted(text: str) -> str:
    if _MARKED(text):
        return '"' + text.replace('"', '""') + '"'
    return text


# ---- files ---------------------------------------------------------------------------------------

_TRIAL = """
import io, pyarrow, pyarrow.json, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), io.BytesIO())
"""
Pieces = Callable[[Iterator[bytes], jsonout.JsonDocument], Iterator[bytes]]
"""A function that yields the pieces of a file of rows, with the report if the format includes
it.
"""
_GROUP_BYTES = 8 << 20
"""The size of a Parquet row group, as JSON text."""


class ListReport(TreeReport, frozen=True):
    """The result for programs: the report of all tree tools, and the entries in order."""

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
        report_to_caller(document)
        whole = self._pieces(self._rows(), document)
        where = "standard output" if self._where == "-" else self._where
        self.write(where, partial(jsonout.stream, whole, self._where))


def as_json(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Yield a JSON document with the entries, followed by the fields of the report."""
    yield b'{"entries": ['
    gap = b"\n"
    for text in rows:
        if text:
            yield gap + text[:-1].replace(b"\n", b",\n")
            gap = b",\n"
    yield b"\n],\n" + jsonout.encode(report).lstrip(b"{\n")


def as_csv(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Yield CSV, with column names in the first line."""
    yield ",".join(NAMES).encode() + b"\n"
    yield from rows


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
        """Do nothing, because no data is buffered."""

    def close(self) -> None:
        """Do nothing, because the caller still needs the data."""

    def taken(self) -> bytes:
        """Return the data written since the last call."""
        pieces, self._chunks = self._chunks, []
        return b"".join(pieces)


def check_arrow() -> None:
    """Raise UsageError if pyarrow is missing or unusable."""
    try:
        try_out("pyarrow", _TRIAL)
    except ImportError as error:
        raise UsageError(f"--parquet: {error}; pip install 'pcircle[parquet]'") from None


_LARGE_TIME = re.compile(rb'("[acm]time_ns":)(-?(?:9\d{18}|\d{20,}))')


def _without_large_times(text: bytes) -> bytes:
    """Replace times in JSON rows that do not fit into 64 bits with null, as Parquet requires."""

    def shorten(found: re.Match[bytes]) -> bytes:
        fits = -(1 << 63) <= int(found[2]) < 1 << 63
        return found[0] if fits else found[1] + b"null"

    return _LARGE_TIME.sub(shorten, text)


def as_parquet(rows: Iterator[bytes], report: jsonout.JsonDocument) -> Iterator[bytes]:
    """Yield a Parquet file with one column for each field of a row."""
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
    """Join texts into pieces of at least `size` bytes, except the last piece."""
    return filter(None, map(b"".join, batches(texts, size)))


def batches(texts: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield texts in batches of at least `size` bytes, except the last batch."""
    batch: list[bytes] = []
    held = 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
