"""fsum: compute one signature for a data set.

The walk is that of a copy, with readers in place of copiers. A rank's signer (`pcircle.ops.digest`)
packs entries, which flow up the joins as bytes. A directory's entries are sorted once, when the
last one has arrived, and are on disk if they are more than 16 MiB. Native calls read small files,
many at a time.

Manifests: each rank writes the sections of the directories that it completes to its own files next
to the manifest. At the end, samples of their paths divide the whole into ranges of some 64 MiB, and
any rank sorts a range. A merge of sorted runs would need a descriptor and a buffer for each run.
Rank 0 concatenates the ranges, because the check at the manifest's end covers all bytes.

A check is the same walk. Each rank finds its directories in the old manifest by bisection and
compares entries as they pass. Before a manifest is trusted, rank 0 recomputes the digest of every
directory from its section; otherwise a manifest that lacks a section would pass.

Lists of whole files (`whole.py`) are a visitor of the same walk. One process computes the digest of
a file, so a file of more than 32 MiB is an item of its own.
"""
