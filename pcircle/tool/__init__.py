"""The floor that every command stands on: from what was typed to what is to be done.

It knows the options that the tools have in common, and words what is wrong with them.
"""
