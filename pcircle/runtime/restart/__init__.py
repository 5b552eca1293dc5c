"""Jobs that restart without a lost rank."""
