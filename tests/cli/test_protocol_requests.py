"""The lines that `agentsdir chat --jsonl` takes for requests, and the order they are done in."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.request_order import RequestOrder
from agentsdir.cli.requests import OWN_VERBS, BadRequest, Request, parse_request
from agentsdir.schemas import check

TEXTS = st.text(max_size=12).filter(lambda text: "\0" not in text)
SCALARS = st.booleans() | st.integers(-5, 5) | st.floats(-9, 9) | TEXTS
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,4})?", fullmatch=True).filter(
    lambda name: name != "root"
)
GOOD = st.fixed_dictionaries(
    {
        "id": st.integers(1 - (1 << 53), (1 << 53) - 1) | st.text(min_size=1, max_size=20),
        "verb": st.sampled_from(["send", "list", "inspect", "tag", "schema"]),
    },
    optional={
        "args": st.lists(TEXTS | st.integers(-9, 9), max_size=3),
        "options": st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=3),
        "stdin": st.text(max_size=20),
        "cwd": TEXTS,
        "beside": st.booleans(),
        "terminal": st.fixed_dictionaries(
            {}, optional={"columns": st.integers(1, 10_000), "color": st.booleans()}
        ),
    },
)
ANY = st.recursive(
    st.none() | SCALARS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
KEYS = list(Request._fields)


def taken(line: bytes) -> Request | None:
    """Return the request that a line is; None if it is refused."""
    try:
        return parse_request(line)
    except BadRequest:
        return None


@given(GOOD)
def test_each_good_request_is_taken_with_all_that_it_says(value: dict[str, Any]) -> None:
    """Nothing is lost, and the schema says that it is good."""
    request = parse_request(orjson.dumps(value))

    assert check("protocol-request", value) == []
    assert (request.id, request.verb) == (value["id"], value["verb"])
    assert list(request.args) == value.get("args", [])
    assert request.options == value.get("options", {})
    assert request.stdin == value.get("stdin")
    line = request.command_line()
    at = len(line) - len(request.args)
    assert line[at - 1 :] == ["--", *map(str, request.args)]
    assert all(word.startswith("--") for word in line[1:at])


@given(GOOD, st.sampled_from([*KEYS, "other"]), ANY)
def test_what_the_schema_refuses_is_refused(value: dict[str, Any], key: str, bad: Any) -> None:
    """Whatever stands in the place of one of its values; there is never another exception."""
    changed = {**value, key: bad}
    line = json.dumps(changed).encode()
    request = taken(line)

    if check("protocol-request", orjson.loads(line)):
        assert request is None
    assert request is None or request.verb not in OWN_VERBS or request.words is None


@given(st.binary(max_size=60))
def test_no_bytes_are_a_crash(line: bytes) -> None:
    """They are a request or they are refused."""
    request = taken(line)

    assert request is None or isinstance(request.verb, str)


@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abc"), max_size=2), st.booleans()), max_size=12),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_requests_with_a_key_in_common_are_done_one_after_another(
    wanted: list[tuple[list[str], bool]], limit: int, random: Any
) -> None:
    """All are done, whichever ends first; never more at once than the limit."""
    order = RequestOrder(limit)
    keys = {}
    for number, (given_keys, beside) in enumerate(wanted):
        keys[number] = set() if beside else set(given_keys)
        order.add(Request(number, "list", beside=beside), keys[number])
    running: list[Request] = []
    begun: list[Any] = []
    while True:
        while (request := order.next()) is not None:
            earlier = [n for n in range(len(wanted)) if n < request.id and n not in begun]
            assert not any(keys[n] & keys[request.id] for n in earlier)
            assert not any(keys[one.id] & keys[request.id] for one in running)
            running.append(request)
            begun.append(request.id)
            for kind in (True, False):
                assert sum(one.beside is kind for one in running) <= limit
        if not running:
            break
        ended = running.pop(random.randrange(len(running)))
        order.done(ended)
    assert sorted(begun) == list(range(len(wanted)))
    assert order.waiting == 0


def test_a_request_that_is_taken_out_holds_up_no_other() -> None:
    """Also where it was the first in the row."""
    order = RequestOrder(4)
    first, second, third = (Request(n, "list") for n in (1, 2, 3))
    for request in (first, second, third):
        order.add(request, ["a"])
    assert order.next() is first

    assert order.take_out(2) is second
    assert order.take_out(2) is None
    assert order.next() is None
    order.done(first)
    assert order.next() is third
