"""The short hash of this format: the first 16 hex digits of a SHA-256."""

from __future__ import annotations


def short_hash(data: bytes) -> str:
    """Return the short hash of `data`."""
    # Loads OpenSSL, which costs a small command a tenth of its time; most hash nothing.
    from hashlib import sha256

    return sha256(data).hexdigest()[:16]
