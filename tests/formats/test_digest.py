"""Hashes."""

from __future__ import annotations

import hashlib

from agentsdir.formats.ids import derived_id, short_hash


def test_hashes_are_beginnings_of_sha_256() -> None:
    """A short hash has 16 hex digits, a derived id 24."""
    assert short_hash(b"text") == hashlib.sha256(b"text").hexdigest()[:16]
    assert derived_id("a1", "notice") == hashlib.sha256(b"a1:notice").hexdigest()[:24]
