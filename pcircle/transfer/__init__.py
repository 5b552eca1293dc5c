"""Copies of whole trees: the work of fcp, and of other tools that copy trees.

`plan` is what rank 0 has decided, `items` are the units of work, and `program` connects all parts
to the runtime. `work` processes items, `worker` holds the parts of one thread, and `reports` has
the output of rank 0. `pcircle.ops.copy.entry` copies single entries.
"""
