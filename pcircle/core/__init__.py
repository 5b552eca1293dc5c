"""The foundation of all packages: errors, units, encodings, counters, buffers and imports."""
