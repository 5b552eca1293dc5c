"""The tests of pcircle: folders are named after what they need, or what they hold to account."""
