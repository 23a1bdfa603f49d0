"""Hashes."""

from __future__ import annotations

import hashlib

import pytest

from agentsdir.formats import digest


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096])
def test_a_hash_is_sha_256(size: int) -> None:
    """By Python's own code, and by OpenSSL once there is much to hash."""
    data = bytes(range(256)) * (size // 256 + 1)
    expected = hashlib.sha256(data[:size]).hexdigest()
    grown = digest.sha256(data[: size // 2], more=size)
    grown.update(data[size // 2 : size])
    assert grown.hexdigest() == expected
    assert digest.sha256(data[:size]).hexdigest() == expected
    assert digest.short_hash(data[:size]) == expected[:16]
    many = digest.sha256(more=digest.MANY)
    many.update(data[:size])
    assert many.hexdigest() == expected
    assert type(many) is type(hashlib.sha256())
