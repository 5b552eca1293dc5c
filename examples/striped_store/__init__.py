"""A small striped store: collective metadata operations between the ranks of a job, running."""
