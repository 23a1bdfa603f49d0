"""What a log says twice, or does not say: the rows that need not be decoded.

Half of a log's bytes are the results of a message's calls, told again to the model. So their second
telling is compared with the first. And half of its rows say only that there was another row.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from agentsdir.formats.reading.rows import NOTHING

# How a turn of results goes on behind its id, time and type, and how far those go at most.
_CONTENT = b'"content":[{"functionResponse":'
_BEGINNING = 512
_END = b"}\n"
# What the client writes behind each row. Nothing is made of that time.
_TIME = re.compile(rb'\{"\$set":\{"lastUpdated":"[0-9T:.Z-]*"\}\}\n').fullmatch
_TIME_LENGTH = 64


class Echoes:
    """Decodes the rows of a log, in their order.

    Args:
        skips: give `NOTHING` for rows that say only that there was another row.
    """

    def __init__(self, *, skips: bool = True) -> None:
        self._skips = skips
        # What the calls of the last row gave; empty if it made none.
        self._given: list[Any] = []

    def decode(self, data: bytes) -> Any:
        """Return the value of a row, or `NOTHING`. Raises `JSONDecodeError`."""
        if len(data) < _TIME_LENGTH and self._skips and _TIME(data):
            return NOTHING
        if self._given:
            begin = data.find(_CONTENT, 0, _BEGINNING)
            if begin > 0:
                given, self._given = self._given, []
                # The same bytes mean the same value.
                at, told = begin + len(b'"content":'), orjson.dumps(given)
                if data.startswith(told, at) and data[at + len(told) :] == _END:
                    value = orjson.loads(data[:begin] + b'"content":null}')
                    value["content"] = given
                    return value
        value = orjson.loads(data)
        if type(value) is dict and "toolCalls" in value:
            self._given = _given(value["toolCalls"])
        return value


def _given(calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        return []
    results = [call.get("result") for call in calls if isinstance(call, dict)]
    return [part for result in results if isinstance(result, list) for part in result]
