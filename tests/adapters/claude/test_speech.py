"""Who speaks in a `user` row: each form that docs/clients/claude.md lists, and words like one."""

import re
from pathlib import Path
from typing import Any

import pytest
from claude_support import call, lines, of_type, parse, prompts, result, row, said, user

pytestmark = pytest.mark.feature("B-01")

_CAVEAT = user("c1", None, "<local-command-caveat>Caveat: x</local-command-caveat>", isMeta=True)
_YES = [
    said("a1", None, call("t1")),
    user("u1", "a1", [result("t1"), {"type": "text", "text": "W"}]),
]
# For each row of the table: rows of that form, what is a prompt, and the events that show.
FORMS: dict[str, tuple[list[dict[str, Any]], list[Any], list[str]]] = {
    "a typed or queued prompt": (
        [user("u1", None, "<bash-input>ls</bash-input>", permissionMode="default")],
        ["<bash-input>ls</bash-input>"], [],
    ),
    "a prompt": ([user("u1", None, "hi")], ["hi"], []),
    '`<channel source="…">`': (
        [user("u1", None, '<channel source="chat">\nW\n</channel>', isMeta=True,
              origin={"kind": "channel", "server": "chat"})],
        ["W"], [],
    ),
    "words beside a yes": (_YES, ["W"], []),
    "`<pasted_content id=…>`": (
        [user("u1", None, 'Look: \n\n<pasted_content id="4a">\nX\n</pasted_content id="4a">\n\n!',
              promptSource="typed", origin={"kind": "human"})],
        ["Look: X!"], [],
    ),
    "`<command-name>`, `<command-message>` in either order, with `<command-args>`": (
        [user("u1", None, "<command-message>greet</command-message>\n<command-name>/greet"
              "</command-name>\n<command-args>all</command-args>", origin={"kind": "human"})],
        [], ["local_command"],
    ),
    "`<bash-input>`": (
        [user("u1", None, "<bash-input>ls</bash-input>")], [], ["local_command"],
    ),
    "`<user-memory-input>`": (
        [user("u1", None, "<user-memory-input>note</user-memory-input>", version="1.0.128")],
        [], ["local_command"],
    ),
    "`<local-command-stdout>`, `<bash-stdout>`, and `-stderr`": (
        [user("u1", None, "<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>")],
        [], ["local_command_output"],
    ),
    "`Unknown skill: x`, `Unknown slash command: x`": (
        [_CAVEAT, user("u1", "c1", "Unknown skill: x")], [], ["local_command"],
    ),
    "`<task-notification>`": (
        [user("u1", None, "<task-notification><summary>s</summary></task-notification>\n"
              "Full transcript available at: /t")], [], ["task_notification"],
    ),
    "`<agent-notification>`": (
        [user("u1", None, "<agent-notification><agent-id>a</agent-id></agent-notification>",
              version="2.0.76")], [], ["task_notification"],
    ),
    "`{\"task_id\":…,\"task_type\":…}`": (
        [user("u1", None, '{"task_id":"b1","task_type":"local_bash","description":"Build"}',
              version="2.1.38")],
        [], ["task_notification"],
    ),
    "`Implement the following plan:`": (
        [user("u1", None, "Implement the following plan:\n\nP\n\nUser feedback on this plan: W",
              planContent="P")], ["W"], ["plan"],
    ),
    "`Stop hook feedback:`": (
        [user("u1", None, "Stop hook feedback:\n[x]: go on", isMeta=True)], [], ["hook"],
    ),
    "`<session-start-hook>`, `<user-prompt-submit-hook>`": (
        [user("u1", None, "<session-start-hook>x</session-start-hook>", version="1.0.128")],
        [], ["hook"],
    ),
    "`[Request interrupted by user]`": (
        [user("u1", None, "[Request interrupted by user]")], [], ["interrupt"],
    ),
    "the summary of a compaction": (
        [user("u1", None, "s", isCompactSummary=True)], [], ["compact_summary"],
    ),
    '`<teammate-message teammate_id="…">`': (
        [user("u1", None, '<teammate-message teammate_id="ann">\nGreen.\n</teammate-message>')],
        [], ["peer_message"],
    ),
    "a teammate's report that came during a turn": (
        [user("u1", None, "go", promptSource="typed"),
         row("attachment", "x1", "u1", attachment={"type": "teammate_mailbox", "messages": [
             {"from": "ann", "text": "All is green."}, {"from": "bob", "text": '{"type":"idle"}'},
         ]})], ["go"], ["peer_message"],
    ),
    "any other row with `isMeta`": ([user("u1", None, "x", isMeta=True)], [], []),
}  # fmt: skip


def test_a_teammate_that_only_says_that_it_waits_shows_nothing() -> None:
    """Clients tell each other so in JSON; the row is hidden as others of its kind."""
    mail = {"type": "teammate_mailbox", "messages": [{"from": "bob", "text": "{}"}, 7]}
    sink = parse(lines(user("u1", None, "go"), row("attachment", "x1", "u1", attachment=mail)))
    assert of_type(sink, "system") == []
    assert sink.tally.hidden_by == {"attachment": 1}


def _table() -> list[str]:
    page = (Path(__file__).resolve().parents[3] / "docs/clients/claude.md").read_text("utf-8")
    found = re.search("<!-- claude-speech: begin -->(.*?)<!-- claude-speech: end -->", page, re.S)
    assert found is not None
    return [line.split(" | ")[0].removeprefix("| ") for line in found[1].strip().split("\n")[2:]]


def test_every_form_of_the_table_has_its_rows() -> None:
    """None without a proof, and no proof of a form that the table lacks."""
    assert _table() == list(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_becomes_what_the_table_says(form: str) -> None:
    """The person's words are a prompt, the client's a system block or hidden."""
    rows, words, events = FORMS[form]
    sink = parse(lines(*rows))
    assert prompts(sink) == words
    assert [block["metadata"]["event"] for block in of_type(sink, "system")] == events
    assert not [finding for finding in sink.findings if finding.id == "doubtful-prompt"]


@pytest.mark.parametrize(
    "text",
    [
        "<command-name>/fake</command-name> typed by hand",
        "[Request interrupted by user] typed by hand",
        "<bash-input>ls</bash-input> typed by hand",
        "<task-notification>no end",
    ],
)
def test_a_text_that_only_begins_like_the_clients_is_a_doubtful_prompt(text: str) -> None:
    """It is shown whole, and remarked on, where the structure does not say that it was typed."""
    sink = parse(lines(user("u1", None, text)))
    assert prompts(sink) == [text]
    assert [finding.id for finding in sink.findings] == ["doubtful-prompt"]
    sure = parse(lines(user("u1", None, text, permissionMode="default")))
    assert prompts(sure) == [text]
    assert sure.findings == []


@pytest.mark.parametrize(
    "text",
    ["Unknown skill: x", '{"task_id": "7", "title": "mine"}', "This session is being continued"],
)
def test_a_persons_text_that_resembles_the_clients_is_a_prompt(text: str) -> None:
    """What stands around it, or its other keys, tell the two apart."""
    assert prompts(parse(lines(user("u1", None, text)))) == [text]


# Each form that the text alone tells, with a version that writes it in such a row. What the client
# marks wherever it writes it has none.
WHOLE = {
    "<command-name>/x</command-name>\n<command-args>a</command-args>": "2.1.98",
    "<command-message>x</command-message>\n<command-name>/x</command-name>": "2.1.98",
    "<bash-input>ls</bash-input>": "2.0.77",
    "<user-memory-input>a</user-memory-input>": "1.0.128",
    "<local-command-stdout>a</local-command-stdout>": "2.0.77",
    "<local-command-stderr>a</local-command-stderr>": "2.0.77",
    "<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>": "2.0.77",
    "<bash-stderr>a</bash-stderr>": "2.0.77",
    "<task-notification>\n<task-id>b</task-id>\n</task-notification>": "2.0.77",
    "<task-notification><status>s</status></task-notification>\nFull transcript available at: /t":
        "2.0.77",
    "<agent-notification><agent-id>b</agent-id></agent-notification>": "2.0.77",
    '{"task_id":"b1","task_type":"local_bash"}': "2.1.49",
    '<teammate-message teammate_id="a">\nx\n</teammate-message>': "2.1.206",
    "<user-prompt-submit-hook>x</user-prompt-submit-hook>": "1.0.128",
    "<session-start-hook>x</session-start-hook>": "1.0.128",
    "Stop hook feedback:\n- [check]: failed\n": "1.0.128",
    "[Request interrupted by user]": "2.0.77",
    "[Request interrupted by user for tool use]": "2.0.77",
}  # fmt: skip
MARKED = [
    "This session is being continued from a previous conversation that ran out of context. S",
    "Caveat: The messages below were generated by the user while running local commands. DO NOT x",
    "<local-command-caveat>x</local-command-caveat>",
    "<system-reminder>x</system-reminder>",
    "<ide_opened_file>x</ide_opened_file>",
    "<ide_selection>x</ide_selection>",
    "<tick>x</tick>",
    "<goal>Make the tests pass.</goal>",
]
WORDS = "my own words"
VERSIONS = ["1.0.128", "2.0.77", "2.1.29"]  # which write no `promptSource` or `permissionMode`


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("form", WHOLE)
def test_a_form_that_the_text_tells_is_no_prompt_in_its_versions(form: str) -> None:
    """The client's own row is a system block that shows."""
    sink = parse(lines(user("u1", None, form, version=WHOLE[form])))
    assert prompts(sink) == []
    assert len(of_type(sink, "system")) == 1
    assert sink.findings == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", [*WHOLE, *MARKED])
def test_words_around_a_form_are_a_prompt(form: str, version: str) -> None:
    """Before it, behind it, or between two of it: they show, whatever the version."""
    for text in (
        f"{WORDS} {form}", f"{form} {WORDS}", f"{form}\n\n{WORDS}", f"{form} {WORDS} {form}",
    ):  # fmt: skip
        for rows in (
            [user("u1", None, text, version=version)],
            [user("u1", None, [_part(text)], version=version)],
            [user("u1", None, [_part(form), _part(WORDS)], version=version)],
            [user("u1", None, [_part(WORDS), _part(form)], version=version)],
            [
                user("u0", None, "go", version=version),
                {"type": "queue-operation", "operation": "enqueue", "content": text},
            ],
        ):
            assert WORDS in str(prompts(parse(lines(*rows)))), text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", MARKED)
def test_a_form_that_the_client_marks_is_a_doubtful_prompt_without_the_mark(
    form: str, version: str
) -> None:
    """A person may have typed it; the client's own row has `isMeta` or a source."""
    sink = parse(lines(user("u1", None, form, version=version)))
    assert prompts(sink) == [form]
    assert [finding.id for finding in sink.findings] == ["doubtful-prompt"]
    for mark in ({"isMeta": True}, {"isCompactSummary": True}, {"promptSource": "system"}):
        assert prompts(parse(lines(user("u1", None, form, version=version, **mark)))) == []


@pytest.mark.parametrize(
    ("form", "version"),
    [
        ("<user-memory-input>a</user-memory-input>", "2.1.29"),
        ("<session-start-hook>x</session-start-hook>", "2.0.77"),
        ("Stop hook feedback:\n- [check]: failed\n", "2.0.77"),
        ("<agent-notification><agent-id>b</agent-id></agent-notification>", "2.1.29"),
        ('{"task_id":"b1","task_type":"local_bash"}', "2.1.50"),
        ('<teammate-message teammate_id="a">\nx\n</teammate-message>', "2.0.77"),
        ("<task-notification>\n<task-id>b</task-id>\n</task-notification>", "1.0.128"),
    ],
)
def test_a_form_of_other_versions_is_a_doubtful_prompt(form: str, version: str) -> None:
    """The client that wrote the row does not write such texts."""
    sink = parse(lines(user("u1", None, form, version=version)))
    assert prompts(sink) == [form]
    assert [finding.id for finding in sink.findings] == ["doubtful-prompt"]


@pytest.mark.parametrize("form", ["<bash-input>ls</bash-input>", "<session-start-hook>x</x>"])
def test_what_the_client_never_queues_nor_puts_beside_a_yes_is_a_prompt_there(form: str) -> None:
    """A form belongs to rows of one kind."""
    queued = {"type": "queue-operation", "operation": "enqueue", "content": form}
    assert prompts(parse(lines(user("u0", None, "go"), queued))) == ["go", form]
    beside = user("u1", "a1", [result("t1"), {"type": "text", "text": form}])
    assert prompts(parse(lines(said("a1", None, call("t1")), beside))) == [form]


def test_an_image_beside_a_form_is_a_prompt() -> None:
    """The client writes no image into such a row, and none is lost."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}
    content = [_part("<bash-input>ls</bash-input>"), image]
    (said_so,) = prompts(parse(lines(user("u1", None, content))))
    assert [part["type"] for part in said_so] == ["text", "image"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ('<bash-input>grep "<bash-stdout>" log</bash-input>', 'grep "<bash-stdout>" log'),
        (
            "<bash-stdout>a <bash-input>ls</bash-input></bash-stdout><bash-stderr>b</bash-stderr>",
            "a <bash-input>ls</bash-input>b",
        ),
    ],
)
def test_a_tag_within_a_command_or_its_output_stands(words: str, shown: str) -> None:
    """Only what the client wraps around it is taken off."""
    (block,) = of_type(parse(lines(user("u1", None, words))), "system")
    assert block["message"] == shown
