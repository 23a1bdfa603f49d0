"""`NamedTuple` as `typing` has it, without what `typing` costs at the start of every command.

Type checkers see the real one. This one makes a class in a sixth of the time, as it compiles no
constructor for each: commands make dozens of classes, and few objects of most of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Making(type):
        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
            if tuple in bases or NamedTuple not in bases:
                return super().__new__(mcs, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            body |= {"__slots__": (), "__match_args__": fields}
            body |= {"_fields": fields, "_field_defaults": defaults}
            body |= {field: _tuplegetter(at, field) for at, field in enumerate(fields)}
            return super().__new__(mcs, name, bases, body)

    class NamedTuple(tuple, metaclass=_Making):
        """A tuple whose fields have names."""

        __slots__ = ()
        _fields: tuple[str, ...] = ()
        _field_defaults: dict[str, Any] = {}  # noqa: RUF012, of its own in each class

        def __new__(cls, *values: Any, **named: Any) -> Any:
            """Make one of the values of all fields, or of those that have no default."""
            if named or len(values) != len(cls._fields):
                values = _all_values(cls, values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values: Any) -> Any:
            return cls(*values)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes: Any) -> Any:
            return type(self)(**{**self._asdict(), **changes})

        def __repr__(self) -> str:
            said = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({said})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    def _all_values(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return the values of all fields. Raises `TypeError` as a call of a function does."""
        given = dict(zip(cls._fields, values, strict=False))
        if len(values) > len(cls._fields) or given.keys() & named.keys():
            raise TypeError(f"{cls.__name__} is given too many values, or one twice")
        given = {**cls._field_defaults, **given, **named}
        try:
            made = [given.pop(field) for field in cls._fields]
        except KeyError as missing:
            raise TypeError(f"{cls.__name__} needs {missing}") from None
        if given:
            raise TypeError(f"{cls.__name__} has no {', '.join(given)}")
        return made
