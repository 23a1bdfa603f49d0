"""Settings of a provider, as `--option NAME=VALUE` says them."""

from __future__ import annotations

from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def provider_options(given: Iterable[str]) -> dict[str, str]:
    """Return the settings by name. Raises `UsageError` for what is no NAME=VALUE."""
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--option {text!r} is not NAME=VALUE")
        options[name] = value
    return options
