"""fprof: profile the contents of a file system, and estimate the space they would take elsewhere.

The sums of a directory are merged by slots and joins, on whichever rank its parts were walked. All
other results stay on their rank until the end and are then merged up the tree of ranks.

A profile (`profile/model.py`) has a fixed size and merges exactly in any order. Sizes are counted
in log-linear bins, 64 for each power of two, from which any histogram can be derived, and quantiles
to 0.8 %. Tables keep the rows that come first in a total order, not the rows that were seen first.
The 4,096 largest directories form a tree by themselves, because no directory is larger than its
parent. This tree is the treemap. Sizes are counted in a dictionary that is folded into the bins
when it is full, so ranks do not import numpy, whose import takes as long as a walk of 35,000 files.

Hard links are claimed at the home of an inode, a rank found by hashing. The index (`--entries`) has
a section for each block of look-ups, written by column. The sample of `--compress` holds the pieces
with the lowest hashes: a simple random sample that merges and is the same in each run.

The HTML page is one file of plain HTML and JavaScript that contains the report as JSON. Chart
libraries have hundreds of kilobytes, and none has a treemap with zoom.

`profile` holds the data about a tree, and `reports` presents it. The other modules are the task and
the command.
"""
