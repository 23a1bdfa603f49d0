"""What the ends of a file say, whatever bytes they are."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from gemini_files import TALK, answer, context, document, header, log, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters.gemini import discover
from agentsdir.adapters.gemini.discover import DOCUMENT, LOG

DOCUMENTED = document(prompt("hi \U0001f914"), answer(), summary="a \\ title")
BYTES = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda data, at, more, cut: data[:at] + more + data[at:][:cut],
        st.sampled_from([TALK, DOCUMENTED]),
        st.integers(0, len(TALK)),
        st.one_of(st.binary(max_size=20), st.sampled_from([b"[", b"{", b'"', b"\\", b"null"])),
        st.integers(0, len(TALK)),
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(data=BYTES, family=st.sampled_from([LOG, DOCUMENT]))
def test_no_bytes_are_too_odd_to_be_looked_at(data: bytes, family: str) -> None:
    """Each answer is a text, or none."""
    ends = discover.ends_of(io.BytesIO(data))
    said = discover.peek(ends)
    texts = (
        said.session_id,
        said.kind,
        discover.summary_of(ends, family),
        discover.cut_prompt(ends, family),
        discover.workspace_of(ends, family),
        discover.started(ends),
        *map(discover.prompt_of, discover.messages(ends, family)),
    )
    assert all(isinstance(text, str) for text in texts)


@pytest.mark.parametrize("length", [30_000, 100_000, 500_000])
def test_a_long_context_is_no_talk(length: int) -> None:
    """However much the client told the model of the workspace, a stub says nothing."""
    said = log(header(), context("/w" * (length // 2)))
    stub, talk = (discover.ends_of(io.BytesIO(data)) for data in (said, said + log(prompt("hi"))))
    assert [discover.peek(one).talks for one in (stub, talk)] == [False, True]


@pytest.mark.parametrize("make", [bytes, lambda data: data + b" " * 3 * discover.END])
@pytest.mark.parametrize("data", [TALK, DOCUMENTED])
def test_a_file_of_any_size_says_the_same(data: bytes, make: Callable[[bytes], bytes]) -> None:
    """What is between its ends is not read."""
    short, long = (discover.peek(discover.ends_of(io.BytesIO(one))) for one in (data, make(data)))
    assert long == short
