"""Hashes of this format: short ones, and ids that follow from another id."""

from __future__ import annotations

from hashlib import sha256


def short_hash(data: bytes) -> str:
    """Return the short hash of `data`: the first 16 hex digits of its SHA-256."""
    return sha256(data).hexdigest()[:16]


def derived_id(origin: str, purpose: str) -> str:
    """Return the id of a record that is made for `origin` once, in the grammar of message ids."""
    return sha256(f"{origin}:{purpose}".encode()).hexdigest()[:24]
