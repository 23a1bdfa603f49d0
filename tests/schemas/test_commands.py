"""`agentsdir validate` and `agentsdir schema`, as typed."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.schemas import catalogue, check

FIXTURES = Path(__file__).parents[2] / "fixtures"
FULL = FIXTURES / "valid" / "full"

pytestmark = pytest.mark.feature("C-09")


def cli(arguments: list[str], cwd: Path, data: bytes = b"") -> tuple[int, str, str]:
    """Run a command line in this process; return exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    env = Environment(io.BytesIO(data), out, err, {}, cwd, cwd)
    return run(arguments, env), out.getvalue(), err.getvalue()


def test_a_problem_is_a_line_with_file_line_id_and_reason(tmp_path: Path) -> None:
    """As compilers say it: the terminal makes such a line a link."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "session.json").write_text('{"id": "x"}\n')

    code, out, err = cli(["validate", "a/session.json"], tmp_path)

    assert code == Exit.FAILED
    assert out.splitlines()[1] == (
        'a/session.json:1: schema: session: "x" does not match ^[0-9a-f]{32}$ at /id (byte 7)'
    )
    assert err == "agentsdir: checked: agents 0, files 1, records 1\n"


def test_json_output_keeps_its_schema(tmp_path: Path) -> None:
    """Each line of `--json` is a valid problem."""
    broken = FIXTURES / "invalid" / "events_seq-gap" / "events.jsonl"

    code, out, _ = cli(["validate", "--json", str(broken)], tmp_path)

    problems = [json.loads(line) for line in out.splitlines()]
    assert code == Exit.FAILED
    assert [problem["id"] for problem in problems] == ["seq-gap", "chain-break"]
    assert all(check("problem", problem) == [] for problem in problems)


def test_without_a_path_the_directory_in_force_is_checked(tmp_path: Path) -> None:
    """Right after `new` and `send` all is well, permissions included."""
    agent = cli(["new"], tmp_path)[1].strip()
    cli(["send", agent, "hi"], tmp_path)

    code, out, err = cli(["validate"], tmp_path)

    assert (code, out) == (Exit.OK, "")
    assert "checked: agents 1, files 9, records 14" in err

    (tmp_path / ".agentsdir").chmod(0o755)
    code, out, _ = cli(["validate"], tmp_path)
    assert code == Exit.FAILED
    assert out == f"{tmp_path}/.agentsdir: wide-mode: the mode is 0755, not 0700\n"
    assert cli(["validate", ".agentsdir"], tmp_path)[0] == Exit.OK
    assert cli(["validate", "--modes", ".agentsdir"], tmp_path)[0] == Exit.FAILED
    assert cli(["validate", "--no-modes"], tmp_path)[0] == Exit.OK


def test_nothing_to_validate_is_no_success(tmp_path: Path) -> None:
    """A check that looked at nothing must not pass in CI."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "other.json").write_text('{"a": 1}\n')

    code, _, err = cli(["validate"], tmp_path)
    assert code == Exit.INVALID
    assert "there is no agents directory" in err
    for name in ("empty", "notes.txt", "other.json"):
        assert cli(["validate", name], tmp_path)[0] == Exit.INVALID
    assert cli(["validate", "-"], tmp_path, b"")[0] == Exit.INVALID
    assert cli(["validate", "nowhere"], tmp_path)[0] == Exit.USAGE


def test_one_operand_of_nothing_does_not_hide_the_others(tmp_path: Path) -> None:
    """The others are checked, and the exit code still says that something was not."""
    (tmp_path / "other.json").write_text('{"a": 1}\n')
    (tmp_path / "descriptor.json").write_text('{"type": "cron"}\n')

    code, out, err = cli(["validate", "other.json", "descriptor.json"], tmp_path)

    assert code == Exit.INVALID
    assert out.startswith("descriptor.json:1: schema: descriptor cron: lacks id")
    assert "other.json is no document of this format" in err


def test_the_kind_of_a_pipe_is_recognised_by_its_content(tmp_path: Path) -> None:
    """Events, blocks and documents can be piped in; `--kind` says what they are meant to be."""
    agent = cli(["new", "--json"], tmp_path)[1]
    name = json.loads(agent)["agentId"]
    events = cli(["send", name, "--events", "hi"], tmp_path)[1]
    page = cli(["inspect", name, "--json"], tmp_path)[1]

    for data in (agent, events, page):
        code, out, err = cli(["validate", "-"], tmp_path, data.encode())
        assert (code, out) == (Exit.OK, "")
        assert "records 0" not in err
    assert cli(["validate", "--kind", "inspection", "-"], tmp_path, page.encode())[0] == Exit.OK
    assert cli(["validate", "--kind", "block", "-"], tmp_path, page.encode())[0] == Exit.FAILED


def test_kind_must_be_one_and_is_for_files(tmp_path: Path) -> None:
    """A wrong kind names what is close; a folder has many kinds."""
    code, _, err = cli(["validate", "--kind", "sesion", "-"], tmp_path)
    assert code == Exit.USAGE
    assert "did you mean session" in err
    assert cli(["validate", "--kind", "block", str(FULL)], tmp_path)[0] == Exit.USAGE


def test_a_folder_of_samples_is_searched(tmp_path: Path) -> None:
    """Directories, agents and files below any folder are found; foreign files are passed over."""
    shutil.copytree(FULL, tmp_path / "a" / "b")
    shutil.copytree(next((FULL / "agents").iterdir()), tmp_path / "a" / "id0000000000000000000001")
    (tmp_path / "a" / "package.json").write_text("{}")
    (tmp_path / "a" / "broken.json").write_text("{")
    (tmp_path / "a" / "blocks.jsonl").write_text('{"type":"thinking","id":"1"}\n')

    code, out, err = cli(["validate", "a"], tmp_path)

    assert code == Exit.FAILED
    assert [line.split(":")[0] for line in out.splitlines()] == ["a/blocks.jsonl"] * len(
        out.splitlines()
    )
    assert "checked: agents 5" in err


def test_schema_lists_every_kind(tmp_path: Path) -> None:
    """One line each; as JSON Lines with `--json`."""
    code, out, err = cli(["schema"], tmp_path)

    assert (code, err) == (Exit.OK, "")
    assert [line.split()[0] for line in out.splitlines()] == list(catalogue.kinds())

    rows = [json.loads(line) for line in cli(["schema", "--json"], tmp_path)[1].splitlines()]
    assert [row["kind"] for row in rows] == list(catalogue.kinds())
    assert all(check("schema-entry", row) == [] for row in rows)


@pytest.mark.parametrize("kind", ["block", "event-turn-start"])
def test_schema_prints_one(kind: str, tmp_path: Path) -> None:
    """What it prints is the file."""
    code, out, _ = cli(["schema", kind], tmp_path)

    assert code == Exit.OK
    assert json.loads(out) == catalogue.load(kind)


def test_schema_names_what_is_close(tmp_path: Path) -> None:
    """A slip of the finger is answered with what may have been meant."""
    code, _, err = cli(["schema", "evnt"], tmp_path)

    assert code == Exit.USAGE
    assert "there is no schema 'evnt' (did you mean event" in err
    assert "`agentsdir schema` lists them" in cli(["schema", "zzzzzz"], tmp_path)[2]
