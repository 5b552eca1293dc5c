"""What everything else stands on: errors, units, names, encodings, invariants, buffers."""
