"""JSON Schemas (2020-12) of what agentsdir reads and writes, and the two validators over them.

The schemas are files, one for each kind, in `v1/`. What a release has shipped is frozen:
`released.json` holds the SHA-256 of every file by version, and a test compares. While a version is
in the making, ``python tests/schemas/test_released.py`` records its files anew.

`check` is the way in. It imports a validator only when it is called: a command that validates
nothing does not pay for one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.schemas.violations import Violation


def check(kind: str, value: Any) -> list[Violation]:
    """Return what in `value` breaks the schema of `kind`; nothing when it is valid.

    Args:
        kind: a name that `catalogue.kinds` has, such as ``event``.
        value: decoded JSON. Duplicate keys and rounded integers are gone by then; `places.scan`
            finds those in the text.

    Raises `KeyError` for an unknown kind.
    """
    if _fast()(kind, value):
        return []
    from agentsdir.schemas.explain import explain

    return explain(kind, value)


@cache
def _fast() -> Callable[[str, Any], bool]:
    from agentsdir.schemas.accept import accepts

    return accepts
