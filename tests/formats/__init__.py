"""Files of earlier versions, and the test that they stay readable."""
