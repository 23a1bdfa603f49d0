"""Ids, names and tags: what may become a path, and ids that follow from another id."""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable

# Hashes of this format: short ones, and ids that follow from another id.


def short_hash(data: bytes) -> str:
    """Return the short hash of `data`: the first 16 hex digits of its SHA-256."""
    return sha256(data).hexdigest()[:16]


def derived_id(origin: str, purpose: str) -> str:
    """Return the id of a record that is made for `origin` once, in the grammar of message ids."""
    return sha256(f"{origin}:{purpose}".encode()).hexdigest()[:24]


def stand_in(value: Hashable) -> int:
    """Return a number that stands for a value where only its equality matters, in one process.

    It takes less memory than an id, and two values have the same one about once in 2^60.
    """
    return hash(value) & 0xFFF_FFFF_FFFF_FFFF


def lasting_stand_in(value: str | tuple[str, ...]) -> int:
    """Return what `stand_in` does, but the same number in every process, at ten times the cost."""
    text = value if isinstance(value, str) else "\0".join(value)
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest()) & 0xFFF_FFFF_FFFF_FFFF


# The id grammar: the one place that decides whether a name may become a path (SPEC.md, "Ids").
#
# Lower case and digits only, so that no file system folds two ids into one and no id can hold a
# separator, a dot, a NUL or a drive letter.

_LETTERS_AND_DIGITS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_HEX_DIGITS = frozenset("0123456789abcdef")
# A name is for people: anything printable that cannot be taken for an option or a reference.
NAME = r"[^\x00-\x1f\x7f@/\s-][^\x00-\x1f\x7f/]{0,127}"
# One word that no command takes for an option, an addition or a removal.
TAG = r"[^\s,+-][^\s,]{0,63}"
MIN_PREFIX = 4


def may_be_name(text: str) -> bool:
    """Tell whether `text` has what a name is made of; `check_name` says the rest."""
    return re.fullmatch(NAME, text) is not None


def is_agent_id(text: str) -> bool:
    """Tell whether `text` may name an agent folder."""
    return 24 <= len(text) <= 32 and _LETTERS_AND_DIGITS.issuperset(text)


def is_session_id(text: str) -> bool:
    """Tell whether `text` is a uuid in 32 hex digits, the only form we write."""
    return len(text) == 32 and _HEX_DIGITS.issuperset(text)


def dashed(session_id: str) -> str:
    """Return a session id in the dashed form that the native clients use."""
    h = session_id
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def undashed(text: str) -> str:
    """Return a uuid without its dashes; other text unchanged."""
    bare = text.replace("-", "").lower()
    return bare if len(text) == 36 and is_session_id(bare) else text


def check_agent_id(text: str) -> str:
    """Return `text`. Raises `UsageError` (kind ``bad-id``) when it breaks the grammar."""
    if not is_agent_id(text):
        raise UsageError(
            f"{text!r} is no agent id: 24 to 32 lower-case letters and digits", kind="bad-id"
        )
    return text


NAME_RULE = "1 to 128 printable characters, no slash, not beginning with '@', '-' or a space"


def check_name(text: str) -> str:
    """Return `text`. Raises `UsageError` (kind ``bad-name``) when it cannot be a name."""
    if not may_be_name(text) or not text.isprintable():
        raise UsageError(f"{text!r} is no name: {NAME_RULE}", kind="bad-name")
    return text


def check_tag(text: str) -> str:
    """Return `text`. Raises `UsageError` (kind ``bad-tag``) when it cannot be a tag."""
    if re.fullmatch(TAG, text) is None or not text.isprintable():
        raise UsageError(
            f"{text!r} is no tag: 1 to 64 printable characters without space or comma, "
            "not beginning with '+' or '-'",
            kind="bad-tag",
        )
    return text
