"""Files and directories: access through descriptors, attributes, holes, and copying of data."""
