"""fbench: measures a file system through the asynchronous layer, after Snyder 2013, ch. 5."""
