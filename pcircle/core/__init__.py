"""The foundation of all packages: errors, units, names, encodings, invariants, buffers."""
