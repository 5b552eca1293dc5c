"""Names that are alike for the file system, as on vfat, CIFS, ext4 with casefold, and macOS.

A name finds the entry that is alike; a new one is kept as it was given, but in the composed form
where forms are alike: so a listing may show another name than was given, as HFS+ and NFS servers
do. Each look-up lists the directory, which is dear and can't be wrong.
"""

from __future__ import annotations

import os
import unicodedata


class Folded:
    """What is alike: "case", the Unicode "form", "both", or nothing if that is empty."""

    def __init__(self, folding: str) -> None:
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
        if not (self._case or self._form):
            return name
        if os.path.lexists(os.path.join(directory, name)):
            return name
        key = self._key(name)
        there = os.listdir(directory)
        return next((other for other in there if self._key(other) == key), self.stored(name))
