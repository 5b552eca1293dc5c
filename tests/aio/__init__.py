"""The asynchronous layer: futures, operations, composites, and tuning of concurrency."""
