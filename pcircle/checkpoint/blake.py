"""BLAKE2b, which names checkpoints and directories in them, without what else `hashlib` loads.

It is Python's own, which `hashlib` hands on; that loads OpenSSL as well, whose two libraries and
settings each rank of a job would open for nothing.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that has it by another name
    from hashlib import blake2b

__all__ = ["blake2b"]
