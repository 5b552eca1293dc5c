"""One entry, copied from one open directory to another, with all that belongs to it.

`files` copies contents (`plain` is the innermost loop for small ones), `links` and `special` the
rest. `target` creates, replaces and publishes, `existing` says what stays; `extras`, `layouts` and
`precision` are about what a copy keeps. It knows `Settings` and no tool's options, and has no idea
of items, ranks or journals, so that any tool that walks can compose it.
"""
