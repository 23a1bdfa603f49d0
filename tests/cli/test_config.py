"""`agentsdir config`: settings.toml of a root and the user's config.toml, shown and changed."""

from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.config import Config, ProviderConfig, decode_config
from agentsdir.cli.settings import ROOT_KEYS, changed_file
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.settings import Settings
from agentsdir.schemas import check


@pytest.fixture
def user(shell: Any) -> Any:
    """Return a user with an agents directory, who set nothing."""
    shell.new()
    shell.variables["AGENTSDIR_PROVIDER"] = ""
    return shell


def config_toml(shell: Any) -> Path:
    """Return the path of the user's config.toml."""
    path: Path = shell.home / ".config/agentsdir/config.toml"
    return path


def settings_toml(shell: Any) -> Path:
    """Return the path of the root's settings.toml."""
    path: Path = shell.root / "settings.toml"
    return path


def rows(shell: Any, *words: str) -> dict[str, dict[str, Any]]:
    """Return the settings that a command prints as JSON, by key and file."""
    found = shell.ok("config", *words).rows
    assert [check("setting", row) for row in found] == [[]] * len(found)
    return {f"{Path(row['file']).name} {row['key']}": row for row in found}


def test_every_setting_is_shown_with_its_value_its_place_and_its_meaning(
    user: Any, snapshot: Any
) -> None:
    """As a page on a terminal, as JSON Lines in a pipe."""
    user.ok("config", "max_slots=8", "fallbacks=gemini,echo", "providers.claude.env.A_KEY=secret")
    text = user.ok("config", tty=True).out
    for place in (user.root, user.home):
        text = text.replace(str(place), place.name.upper())
    assert text == snapshot
    found = rows(user)
    assert {key.split()[1] for key in found if key.startswith("settings")} == set(ROOT_KEYS)
    slots = found["settings.toml max_slots"]
    assert (slots["value"], slots["source"]) == (8, "file")
    assert found["settings.toml durability"]["source"] == "default"
    assert found["config.toml providers.claude.env.A_KEY"]["value"] is None
    assert user.ok("config", "providers.claude.env.A_KEY").out == "secret\n"
    assert set(ROOT_KEYS) == set(Settings._fields) - {"unknown"}


def test_what_is_set_is_what_commands_go_by(user: Any) -> None:
    """And the file is named."""
    assert user.ok("config", "provider=script").out == f"{settings_toml(user)}\n"
    assert user.log(user.new())[0]["data"]["provider"] == "script"
    user.ok("config", "--unset", "provider")
    assert user.ok("config", "--user", "provider=echo").out == f"{config_toml(user)}\n"
    assert user.ok("new").err == ""
    assert rows(user, "--user", "--json", "provider")["config.toml provider"]["value"] == "echo"


def test_a_variable_goes_before_the_file_and_is_named(user: Any) -> None:
    """The file's value does not count meanwhile."""
    user.variables["AGENTSDIR_PROVIDER"] = "gemini"
    row = rows(user, "--json", "provider=claude")["settings.toml provider"]
    assert (row["value"], row["source"]) == ("gemini", "$AGENTSDIR_PROVIDER")


def test_comments_and_unknown_keys_stay(user: Any) -> None:
    """A file that a person wrote is changed in one place."""
    config_toml(user).parent.mkdir(parents=True)
    config_toml(user).write_text('# mine\n[providers.claude]\nmodel = "a"  # fast\nargs = ["-x"]\n')
    config_toml(user).chmod(0o600)
    settings_toml(user).write_text("# ours\nlater = 1\n")
    user("config", "providers.claude.model=b", "max_slots=2")
    assert config_toml(user).read_text() == (
        '# mine\n[providers.claude]\nmodel = "b"  # fast\nargs = ["-x"]\n'
    )
    assert settings_toml(user).read_text() == "# ours\nlater = 1\nmax_slots = 2\n"
    assert config_toml(user).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "words",
    [
        ("max_slots=0",),
        ("max_slots=many",),
        ("idle_timeout=-1",),
        ("durability=perhaps",),
        ("provider=",),
        ("colour=blue",),
        ("providers.claude.colour=blue",),
        ("providers.claude=blue",),
        ("--user", "max_slots=3"),
        ("max_slots=3", "durability=perhaps"),
        ("providers.claude.command='",),
        ("--unset",),
        ("--unset", "max_slots=3"),
        ("max_slots", "durability"),
        ("providers.claude.model",),
    ],
    ids=" ".join,
)
def test_what_cannot_be_set_is_refused_and_nothing_is_changed(user: Any, words: Any) -> None:
    """Of several settings all are set, or none."""
    done = user("config", *words)
    assert (done.code, done.out) == (2, ""), done
    assert not config_toml(user).exists()
    assert not settings_toml(user).exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[providers]\nclaude = {model="q"}\n', "providers.claude.env.A=b"),
        ('providers = {claude={model="q"}}\n', "providers.gemini.model=b"),
        ("", "providers.claude.model=\udcff"),
        ("", "providers.claude.env.A=\udcff"),
        ("", "fallbacks=\udcff"),
        ("", "max_slots=99999999999999999999999"),
        ("", "max_slots=1_0"),
        ("", "idle_timeout=\u0663"),
        ("", "idle_timeout=1e400"),
    ],
)
def test_what_a_file_cannot_hold_is_set_or_refused_in_a_line(
    user: Any, text: str, words: str
) -> None:
    """Inline tables, half characters, numbers of any size: what is there stays readable."""
    if text:
        config_toml(user).parent.mkdir(parents=True)
        config_toml(user).write_text(text)
        config_toml(user).chmod(0o600)
    done = user("config", words)
    assert done.code in (0, 2), done
    assert done.err.count("\n") == (1 if done.code else 0)
    assert user.ok("config", tty=True)
    assert not text or "q" in config_toml(user).read_text()


def test_what_one_library_reads_and_the_other_does_not_is_refused_in_a_line(user: Any) -> None:
    """A root that was cloned may bring it."""
    settings_toml(user).write_text("a=" + "[" * 150 + "]" * 150)
    assert user("config").code == 0
    assert user("config", "max_slots=3").code in (0, 2)


def test_unsetting_leaves_nothing_behind(user: Any) -> None:
    """Neither an empty table, nor a file that was not there."""
    user.ok("config", "providers.claude.env.A=b", "providers.claude.model=m")
    user.ok("config", "--unset", "providers.claude.env.A", "providers.gemini.model")
    assert config_toml(user).read_text().strip() == '[providers.claude]\nmodel = "m"'
    user.ok("config", "--unset", "max_slots")
    assert not settings_toml(user).exists()


def test_a_value_cannot_imitate_lines_of_the_page(user: Any) -> None:
    """As of a root that was cloned."""
    settings_toml(user).write_text('provider = "echo\\n\\nSettings of yours: x\\n  model  y"\n')
    assert user.ok("config", tty=True).out.count("Settings of yours") == 1 + 1
    assert user.ok("config", tty=True).out.count("\nSettings of yours") == 1


def test_a_damaged_file_is_named_and_hides_no_other(user: Any) -> None:
    """It is not changed either."""
    settings_toml(user).write_text("max_slots = \n")
    done = user("config")
    assert done.code == 12
    assert str(settings_toml(user)) in done.err
    assert [row["key"] for row in done.rows] == ["provider"]
    assert user("config", "max_slots=3").code == 12
    assert settings_toml(user).read_text() == "max_slots = \n"


def test_a_turn_changes_no_settings(user: Any) -> None:
    """It could give itself another program, or another mode; it may read them."""
    agent = user.new("--provider", "echo")
    user.variables |= {"AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": "t" * 24}
    done = user("config", "--json", "providers.claude.permission_mode=bypassPermissions")
    assert (done.code, done.error["kind"]) == (13, "in-turn")
    assert not config_toml(user).exists()
    assert user("config").code == 0


def test_without_an_agents_directory_only_the_users_settings_can_be_set(shell: Any) -> None:
    """Nothing is made but config.toml."""
    assert shell("config", "max_slots=3").code == 2
    assert not shell.root.exists()
    shell.ok("config", "--user", "provider=echo")
    assert not shell.root.exists()


WORDS = st.text(string.printable, max_size=20)


@given(WORDS, WORDS, WORDS)
def test_any_text_is_read_back_as_it_was_set(model: str, mode: str, variable: str) -> None:
    """Quotes, newlines, brackets and all; what no file can hold is refused."""
    wanted = {
        "providers.x.model": model,
        "providers.x.permission_mode": mode,
        "providers.x.env.V": variable,
    }
    try:
        data = changed_file(b"# kept\n", wanted, lambda data: decode_config(Path("f"), data))
    except UsageError:
        assert "\0" in variable
        return
    assert data.startswith(b"# kept\n")
    found = decode_config(Path("f"), data).providers["x"]
    assert found == ProviderConfig((), mode, model, {"V": variable})
    emptied = changed_file(data, dict.fromkeys(wanted), lambda data: tomllib.loads(data.decode()))
    assert decode_config(Path("f"), emptied) == Config()
