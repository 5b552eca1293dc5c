"""What a file is: descent by descriptors, metadata, holes, and ways to move bytes."""
