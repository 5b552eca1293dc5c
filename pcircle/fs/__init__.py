"""Files and directories: access through descriptors, attributes, holes, and ways to copy bytes."""
