"""fsum: compute one signature for a data set.

The walk is the same as for a copy, except that files are read instead of copied. The signer of a
rank (`pcircle.ops.digest`) packs entries into bytes, and joins merge these. The entries of a
directory are sorted once, when all of them have arrived, and are stored on disk if they exceed 16
MiB. Native calls read many small files at a time.

To write a manifest, each rank writes the sections of the directories that it completes to its own
files next to the manifest. At the end, the manifest is divided into ranges of about 64 MiB
according to samples of the paths. Any rank can sort a range. Merging sorted runs instead would need
a descriptor and a buffer for each run. Rank 0 concatenates the ranges, because the checksum at the
end of a manifest covers all bytes.

To check a tree, ranks walk it in the same way. They find each directory in the old manifest by
bisection, and compare its entries when it is complete. Before a manifest is trusted, rank 0
recomputes the digest of every directory from its section. Otherwise a missing section would go
unnoticed.

Digests of whole files (`whole.py`) are computed by another visitor of the same walk. Such a digest
cannot be computed in parts, so a file of more than 32 MiB becomes a separate item.
"""
