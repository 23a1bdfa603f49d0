"""The session state machine."""

from __future__ import annotations

import itertools

import pytest

from agentsdir.formats.directory.states import Session, SessionState, check_transition
from agentsdir.formats.errors import SessionStateError

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
    """A refusal names both states and changes nothing."""
    session = Session(id="0" * 32, state=SessionState(old))
    if (old, new) in LEGAL:
        check_transition(SessionState(old), SessionState(new))
        session.move(SessionState(new), "t", b"blob")
        assert session.state == new
        return
    with pytest.raises(SessionStateError) as refused:
        session.move(SessionState(new), "t", b"blob")
    assert old in refused.value.message
    assert new in refused.value.message
    assert session == Session(id="0" * 32, state=SessionState(old))
    with pytest.raises(SessionStateError, match="agent xyz"):
        check_transition(SessionState(old), SessionState(new), "xyz")


def test_only_a_suspended_session_has_a_blob_and_a_time_of_suspension() -> None:
    """Both go when it is taken up again."""
    session = Session(id="0" * 32, state=SessionState.ACTIVE)
    session.move(SessionState.SUSPENDED, "t1", b"blob")
    assert (session.suspended_at, session.provider_state) == ("t1", b"blob")
    session.move(SessionState.ACTIVE, "t2", b"ignored")
    assert (session.suspended_at, session.provider_state) == (None, b"")


def test_a_fresh_session_is_what_the_design_says() -> None:
    """Created, and empty otherwise."""
    session = Session(id="0" * 32)
    assert (session.state, session.suspended_at, session.provider_state) == ("created", None, b"")
