"""fbench: benchmark a file system through the asynchronous layer, as in Snyder 2013, chapter 5."""
