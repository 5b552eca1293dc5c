"""The work of a comparison on each rank: pairs, entries of one side, large files and manifests."""
