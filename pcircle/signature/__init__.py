"""One value for a whole tree: the dataset signature, version 1.

A Merkle tree over names, kinds and contents, so that it depends neither on who
read what nor in which order. Blocks of files and entries of directories are
digested wherever they are read; what travels are packed bytes. `algorithms`
are the digests, `digests` the forms of `docs/signature.rst`, `blocks` cuts
what is read, `runs` collects a directory's entries. Nothing here walks a tree.
"""

from pcircle.signature.algorithms import Algorithm, algorithm, names
from pcircle.signature.blocks import BLOCK_BYTES, BlockHasher
from pcircle.signature.digests import (
    file_digest,
    kind_of,
    link_digest,
    node_digest,
    parse_text,
    text_of,
)
from pcircle.signature.runs import Runs, Shelf, entries_of, pack_entry
from pcircle.signature.signer import PART, Signer

__all__ = [
    "BLOCK_BYTES",
    "PART",
    "Algorithm",
    "BlockHasher",
    "Runs",
    "Shelf",
    "Signer",
    "algorithm",
    "entries_of",
    "file_digest",
    "kind_of",
    "link_digest",
    "names",
    "node_digest",
    "pack_entry",
    "parse_text",
    "text_of",
]
