"""What is done of a job, on disk: by this another run goes on where one was interrupted.

`store` is the checkpoint as a directory and `guard` its lock; `journal` has the records that each
rank appends, `recorder` an item's way there and `disk` the epochs that they count by; `resumed`
finds what earlier runs have done, and `mark` tells whether the target is still theirs. Of what is
recorded this room knows directories, names in them and ranges of files. It knows no option, and
what is wrong it says as data, which a tool words.
"""
