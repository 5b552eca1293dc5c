"""Dataset signatures, version 1: a single digest of a tree.

A signature is the root of a Merkle tree over the names, types and contents of the entries. It
depends neither on which rank read an entry nor on the order of reading. Therefore each rank
computes the digests of the blocks and directories that it processes, and ranks exchange only names
and digests. `docs/signature.rst` defines the format.

`digests` defines the hash functions, the blocks of file contents and the digest of each type of
entry. `signer` collects the entries of directories and combines their digests on one rank.
`manifest` stores the digest of every entry, `manifest_update` updates an older manifest, and
`checksums` reads and writes the checksum lists of sha256sum. This package does not walk trees.
"""

from pcircle.ops.digest.digests import (
    BLOCK_BYTES,
    Algorithm,
    BlockHasher,
    algorithm_names,
    file_digest,
    format_signature,
    get_algorithm,
    kind_byte,
    link_digest,
    node_digest,
    parse_signature,
)
from pcircle.ops.digest.signer import PART, Runs, RunStore, Signer, iter_entries, pack_entry

__all__ = [
    "BLOCK_BYTES",
    "PART",
    "Algorithm",
    "BlockHasher",
    "RunStore",
    "Runs",
    "Signer",
    "algorithm_names",
    "file_digest",
    "format_signature",
    "get_algorithm",
    "iter_entries",
    "kind_byte",
    "link_digest",
    "node_digest",
    "pack_entry",
    "parse_signature",
]
