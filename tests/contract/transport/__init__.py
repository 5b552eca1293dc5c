"""What ``pcircle.transport.contract`` promises, asked of every transport."""
