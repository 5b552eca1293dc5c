"""What two entries have different: asked without changing either.

`fields` has the bits that answers are made of. A `Comparer` tells what the status of two entries
tells, one pair or the pairs of two whole blocks of look-ups; `Details` what has to be asked of the
entries themselves: targets of links, attributes, lists, flags, layouts, holes; `Contents` whether
ranges of two open files are the same bytes. `itemized` shows an answer as rsync does. Nothing here
knows of walks, ranks or tools.
"""
