"""Whole trees, copied: the work of fcp, on which whoever else copies trees stands as well.

`plan` is what is to be done, `items` are its units of work, `program` puts all together for the
runtime. `work` is what is done with an item, `worker` what a thread does it with, and `reports` is
what rank 0 tells of it. What becomes of one entry is `pcircle.copying`'s affair.
"""
