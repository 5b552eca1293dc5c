"""Jobs that outlive their ranks, and tell nothing twice."""
