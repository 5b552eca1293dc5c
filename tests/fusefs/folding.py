"""Names that are alike for the file system, as on vfat, CIFS, ext4 with casefold, and macOS.

A name finds the entry that is alike; a new one is kept as it was given, but in the composed form
where forms are alike: so a listing may show another name than was given, as HFS+ and NFS servers
do. Each look-up lists the directory, which is dear and can't be wrong.

And names that are longer than what lies behind can have, as on NTFS and vfat, where 255 letters may
be three times as many bytes.
"""

from __future__ import annotations

import os
import unicodedata

LONG = b"long-" * 60
"""What names begin with that are stored with `_SHORT` in its place."""
_SHORT = b"LONG-"


class Folded:
    """What is alike: "case", the Unicode "form", "both", or nothing if empty; "long" names."""

    def __init__(self, folding: str) -> None:
        self._is_long = folding == "long"
        self._case = folding in ("case", "both")
        self._form = folding in ("form", "both")

    def stored(self, name: bytes) -> bytes:
        """What a new entry is called."""
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
        """What the entry is called that a name stands for; of a new one, what it will be."""
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
        """What a listing shows of an entry."""
        return stored.replace(_SHORT, LONG) if self._is_long else stored
