"""Names of which none is given twice: a number tells those apart that a client gave again."""

from __future__ import annotations


class Names:
    """The names that were given so far."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """Return `name`, with a number behind it if it, or what that makes, was given before."""
        unique = name
        while unique in self._count:
            self._count[name] += 1
            unique = f"{name}~{self._count[name]}"
        self._count[unique] = 1
        return unique
