"""BLAKE2b for the names of checkpoints and the keys of directories, without importing `hashlib`.

`hashlib` re-exports Python's own implementation but also loads OpenSSL, whose two libraries and
configuration every rank of a job would open without need.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python with another module name
    from hashlib import blake2b

__all__ = ["blake2b"]
