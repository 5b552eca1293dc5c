"""The tests of pcircle. Each folder is named after what its tests need or cover."""
