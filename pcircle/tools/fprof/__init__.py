"""fprof: profile the contents of a file system, and estimate the space they would take elsewhere.

The sums of a directory are merged by slots and joins, because several ranks may walk its parts. All
other results stay on their rank until the end of the walk and are then merged up the tree of ranks.

A profile (`profile/model.py`) has a bounded size, and profiles can be merged exactly in any order.
Sizes are counted in log-linear bins, 64 for each power of two. From these, histograms can be
derived, and quantiles with an error of at most 0.8 %. Tables keep the rows that come first in a
total order, not those that are found first. Because no directory is larger than its parent, the
4,096 largest directories form a tree without gaps. The treemap shows this tree. Sizes are counted
in a dictionary that is folded into the bins. This is fast enough without numpy, and importing numpy
would take as long as walking 35,000 files.

Ranks claim hard-linked files at the home of the inode, a rank determined by hashing. The index
(`--entries`) consists of sections, one for each block of look-ups, stored by column. The sample of
`--compress` consists of the pieces with the lowest hashes. It is a simple random sample that can be
merged, and an unchanged tree always yields the same one.

The HTML page is one file of plain HTML and JavaScript that contains the report as JSON. A chart
library would add hundreds of kilobytes.

The package `profile` collects the data, and `reports` presents it. The other modules implement the
task and the command.
"""
