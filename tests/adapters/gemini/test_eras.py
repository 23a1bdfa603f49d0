"""What each era of the client, and each of its known faults, leaves in files, and what is read.

The golden blocks beside each fixture hold the rest.
"""

from __future__ import annotations

import pytest
from gemini_reading import read_fixture

# What it is; the fixture; prompts and results, live and in all; what is remarked on.
ERAS = [
    ("0.11: a folder by hash, no kind", "era-0.11-four", (1, 1), (4, 4), set()),
    ("0.15.4: four calls in one message", "era-0.15.json", (1, 1), (4, 4), set()),
    ("0.29: a folder by name", "era-0.29-four", (1, 1), (4, 4), set()),
    ("0.35: a child overwrites its parent's", "era-0.35-lost-child.json", (1, 1), (0, 0), set()),
    ("0.38: one message for each answer", "era-0.38-four", (1, 1), (4, 4), set()),
    ("0.38, resumed: the file is rewritten", "era-0.38-resume", (2, 2), (1, 1), set()),
    ("0.40: a log; resumes leave headers", "era-0.40-later", (3, 3), (1, 1),
     {"no-messages", "shared-id"}),
    ("0.45: every resume lists all again", "era-0.45-twice", (4, 4), (1, 1),
     {"no-messages", "shared-id"}),
    ("0.61: results in turns of their own", "era-0.61-four", (1, 1), (4, 4), set()),
]  # fmt: skip
FAULTS = [
    ("#15292 a document cut by a crash", "half-document.json", (1, 1), (4, 4), {"half-document"}),
    ("#26425 a log cut in a row", "torn.jsonl", (2, 2), (0, 0), {"splice"}),
    ("#28693 a resume in the minute of the start", "era-0.61-same-minute-resume.jsonl",
     (3, 3), (4, 4), set()),
    ("#27368 a resume leaves stubs of its id", "era-0.61-later", (3, 3), (1, 1),
     {"no-messages", "shared-id"}),
    ("#27877 an upgrade leaves twins", "era-0.38-twins", (4, 4), (2, 2),
     {"no-messages", "shared-id"}),
    ("#27270 nothing but a stub", "stub.jsonl", (0, 0), (0, 0), {"no-messages"}),
    ("#20258 a child with its parent's id", "subagent-flat", (3, 3), (0, 0), {"orphan-subagent"}),
    ("#24532 prompts without their session", "prompt-log.json", (2, 2), (0, 0), {"last-resort"}),
    ("#29365 results replayed by resumes", "era-0.61-tools.jsonl", (2, 2), (5, 5), set()),
    ("#1690 a call without a result", "dangling.jsonl", (3, 3), (0, 0), set()),
    ("#20183 no result line", "stream-cut.stdout", (1, 1), (0, 0), set()),
    ("#26617 images in results", "era-0.61-image.jsonl", (2, 2), (1, 1), set()),
    ("#663 children in folders", "subagent-0.61", (3, 3), (2, 2), set()),
    ("ids twice in one list", "twice-in-a-list.jsonl", (2, 4), (0, 0), set()),
    ("an import leaves a stub", "era-0.61-import", (3, 3), (2, 2), {"no-messages", "shared-id"}),
    ("a rewind to no message drops all", "unknown-rewind.jsonl", (0, 1), (0, 0), set()),
    ("a failed turn takes its prompt back", "era-0.61-err400", (2, 3), (0, 0), set()),
    ("a kill amid a tool leaves no call", "era-0.61-kill-tool.jsonl", (2, 2), (0, 0), set()),
    ("a kill amid a child leaves an orphan", "era-0.61-kill-child", (3, 3), (0, 0),
     {"orphan-subagent"}),
    ("a compression keeps what it sums up", "compress.jsonl", (3, 3), (1, 1), set()),
    ("an output masked later", "masked.jsonl", (1, 1), (1, 1), set()),
    ("lines that only LF ends", "separators.jsonl", (1, 1), (0, 0), set()),
]  # fmt: skip
VIEWS = ("live", "all")
EVERY = [pytest.param(*case[1:], id=case[0]) for case in ERAS + FAULTS]


@pytest.mark.feature("B-01")
@pytest.mark.parametrize(("name", "prompts", "results", "findings"), EVERY)
def test_each_era_and_fault_is_read(
    name: str, prompts: tuple[int, int], results: tuple[int, int], findings: set[str]
):
    """Prompts and results, each once; what is no longer live is only in the whole view."""
    reading = read_fixture(name, hidden=False)
    for kind, counts in (("user_message", prompts), ("tool_result", results)):
        found = [sum(one["type"] == kind for one in reading.blocks(view)) for view in VIEWS]
        assert (kind, *found) == (kind, *counts)
    assert set(reading.findings) == findings
