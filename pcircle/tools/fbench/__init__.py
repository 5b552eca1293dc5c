"""fbench: benchmark a file system through the asynchronous layer, after Snyder 2013, chapter 5."""
