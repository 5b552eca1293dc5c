"""What is known of a tree: how it is added up, merged, kept, and compared with another."""
