"""The session state machine."""

from __future__ import annotations

import itertools

import pytest

from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.store.state import SessionState, check_transition

LEGAL = {
    ("created", "active"),
    ("active", "suspended"),
    ("suspended", "active"),
    ("created", "terminated"),
    ("active", "terminated"),
    ("suspended", "terminated"),
}
EVERY = list(itertools.product(("created", "active", "suspended", "terminated"), repeat=2))


def test_there_are_the_four_states_of_the_design() -> None:
    """Spelled as in files."""
    assert [state.value for state in SessionState] == [
        "created",
        "active",
        "suspended",
        "terminated",
    ]


@pytest.mark.feature("S-01")
@pytest.mark.parametrize(("old", "new"), EVERY)
def test_every_transition_is_allowed_or_refused_as_the_matrix_says(old: str, new: str) -> None:
    """A refusal names both states."""
    if (old, new) in LEGAL:
        check_transition(SessionState(old), SessionState(new))
        return
    with pytest.raises(SessionStateError) as refused:
        check_transition(SessionState(old), SessionState(new))
    assert old in refused.value.message
    assert new in refused.value.message
    with pytest.raises(SessionStateError, match="agent xyz"):
        check_transition(SessionState(old), SessionState(new), "xyz")
