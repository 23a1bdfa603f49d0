"""Settings of a provider, as `--option NAME=VALUE` says them."""

from __future__ import annotations

from agentsdir.cli.pairs import read_pairs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def provider_options(given: Iterable[str]) -> dict[str, str]:
    """Return the settings by name. Raises `UsageError` for what is no NAME=VALUE."""
    return read_pairs("--option", given)
