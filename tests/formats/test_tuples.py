"""Our `NamedTuple` against that of `typing`."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from agentsdir.formats import tuples


class Ours(tuples.NamedTuple):
    """Three fields, two of which have a default."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        """What two of them say."""
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    """The same."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()


class Narrower(Ours):
    """A class made of one, with no field of its own."""

    def twice(self) -> int:
        """Return twice the first."""
        return 2 * self.first


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "x"), {}),
    ((1, "x", (2,)), {}),
    ((), {"first": 1}),
    ((1,), {"third": (3,)}),
    ((), {"third": (3,), "first": 1, "second": "y"}),
]
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, "x", (), 4), {}),
    ((1,), {"first": 2}),
    ((1,), {"fourth": 2}),
    ((), {"second": "x"}),
]


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_what_is_made_is_the_same(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Its fields, what it equals, and what it says of itself."""
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert ours._asdict() == theirs._asdict()
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (ours.first, ours.second, ours.third) == tuple(theirs)
    assert ours._replace(first=9) == theirs._replace(first=9)
    assert Ours._make(theirs) == ours
    assert copy.copy(ours) == ours
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert type(copy.deepcopy(ours)) is Ours
    assert ours.both == f"{ours.first}{ours.second}"


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_what_cannot_be_made_is_refused_alike(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """With a `TypeError`, as a call of any function."""
    with pytest.raises(TypeError):
        Theirs(*values, **named)
    with pytest.raises(TypeError):
        Ours(*values, **named)


def test_a_field_that_there_is_not_is_not_replaced() -> None:
    """Nor is any field set."""
    with pytest.raises(TypeError):
        Ours(1)._replace(fourth=2)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Ours(1).first = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Ours(1).other = 2  # type: ignore[attr-defined]


def test_the_class_says_what_its_fields_are() -> None:
    """So that a match statement can take it apart."""
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert Ours.__doc__ == "Three fields, two of which have a default."
    match Ours(1, "z"):
        case Ours(first, second):
            assert (first, second) == (1, "z")
        case _:
            pytest.fail("no match")


def test_a_class_may_be_made_of_one() -> None:
    """It has the fields, and what it adds."""
    made = Narrower(4, third=(1,))
    assert made == (4, "b", (1,))
    assert made.twice() == 8
    assert type(made._replace(first=5)) is Narrower
