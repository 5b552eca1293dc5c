"""Names that are equal for the file system, as on vfat, CIFS, ext4 with casefold, and macOS.

A name finds the entry with an equal name; a new name is stored as given, except that it is composed
where Unicode forms are equal: so a listing may show another name than the given one, like HFS+ and
NFS servers do. Each look-up lists the directory, which is slow but cannot be wrong.

The file system can also have longer names than the backing one, like NTFS and vfat, where 255
letters may be three times as many bytes.
"""

from __future__ import annotations

import os
import unicodedata

LONG = b"long-" * 60
"""The prefix of names that are stored with `_SHORT` in its place."""
_SHORT = b"LONG-"


class Folded:
    """The equality of names: "case", the Unicode "form", "both", or exact if empty; or "long"."""

    def __init__(self, folding: str) -> None:
        self._is_long = folding == "long"
        self._case = folding in ("case", "both")
        self._form = folding in ("form", "both")

    def stored(self, name: bytes) -> bytes:
        """Return the stored name of a new entry."""
        try:
            return unicodedata.normalize("NFC", name.decode()).encode() if self._form else name
        except UnicodeDecodeError:
            return name

    def _key(self, name: bytes) -> bytes:
        if name.isascii():
            return name.lower() if self._case else name
        try:
            text = self.stored(name).decode()
        except UnicodeDecodeError:
            return name
        return text.casefold().encode() if self._case else text.encode()

    def real(self, directory: bytes, name: bytes) -> bytes:
        """Return the stored name of an entry, or that of a new one."""
        if self._is_long:
            return name.replace(LONG, _SHORT)
        if not (self._case or self._form):
            return name
        if os.path.lexists(os.path.join(directory, name)):
            return name
        key = self._key(name)
        there = os.listdir(directory)
        return next((other for other in there if self._key(other) == key), self.stored(name))

    def listed(self, stored: bytes) -> bytes:
        """Return the name of an entry in a listing."""
        return stored.replace(_SHORT, LONG) if self._is_long else stored
