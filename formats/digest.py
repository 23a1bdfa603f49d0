"""Hashes of this format: SHA-256, short ones, and ids that follow from another id."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import _Hash
    from hashlib import sha256 as _own
    from typing import TypeAlias

    Hash: TypeAlias = _Hash
else:
    # Python's own, as its `random` does: hashlib loads OpenSSL, which takes a small command longer
    # than all that it hashes.
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256 as _own
        else:
            from _sha256 import sha256 as _own
    except ImportError:
        from hashlib import sha256 as _own

MANY = 1024 * 1024
"""Bytes from which on OpenSSL is worth its start: it is seven times faster."""
_hashed = 0


def sha256(data: bytes = b"", *, more: int = 0) -> Hash:
    """Return the SHA-256 of `data`, to which about `more` bytes are to be added."""
    global _hashed
    _hashed += len(data) + more
    if _hashed < MANY:
        return _own(data)
    from hashlib import sha256

    return sha256(data)


def short_hash(data: bytes) -> str:
    """Return the short hash of `data`: the first 16 hex digits of its SHA-256."""
    return sha256(data).hexdigest()[:16]


def derived_id(origin: str, purpose: str) -> str:
    """Return the id of a record that is made for `origin` once, in the grammar of message ids."""
    return sha256(f"{origin}:{purpose}".encode()).hexdigest()[:24]
