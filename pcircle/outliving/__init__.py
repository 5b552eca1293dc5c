"""Jobs that restart without a lost rank, and repeat no output."""
