"""fprof: what is in a file system, and what it would take to store it elsewhere.

The sums of a directory are merged by slots and joins wherever its parts were walked. Everything
else stays on its rank until the end and is then merged up the tree of ranks.

A profile (`profile/model.py`) has a fixed size and merges exactly in any order. Sizes are counted
in log-linear bins, 64 for each power of two, which give any histogram, and quantiles to 0.8 %.
Tables keep the rows that come first in a total order, not the rows that were seen first. The 4,096
largest directories form a tree themselves, because no directory is larger than its parent: that is
the treemap. Sizes are counted in a dictionary that is folded into the bins when it is full, so
ranks do not import numpy, whose import takes as long as a walk of 35,000 files.

Hard links are claimed at an inode's home, a rank found by hashing. The index (`--entries`) has a
section for each block of look-ups, written by column. The sample of `--compress` holds the pieces
with the lowest hashes: a simple random sample that merges and is the same in each run.

The HTML page is one file of plain HTML and JavaScript with the report as JSON in it; chart
libraries are hundreds of kilobytes and have no treemap that zooms.

`profile` is what is known of a tree, `reports` presents it; the rest is the task and the command.
"""
