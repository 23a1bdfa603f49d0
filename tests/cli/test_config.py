"""`agentsdir config`: settings.toml of a root and the user's config.toml, shown and changed."""

from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.config import ProviderConfig, decode_config
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
    assert decode_config(Path("f"), emptied).providers["x"] == ProviderConfig()
