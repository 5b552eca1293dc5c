"""The asynchronous layer: futures, operations, composites, the search for concurrency."""
