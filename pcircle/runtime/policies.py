"""The policies of work sharing that a user can choose, as `KEY=VALUE,...`.

Rank 0 reads the environment variable and sends the text to all ranks with the plan, so that all
ranks use the same policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import msgspec

from pcircle.circle.instructions import EngineSettings
from pcircle.core.errors import UsageError

_CHOICES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "steal": {
        "random": {"victims": "random"},
        "near": {"victims": "nearest"},
        "lifelines": {"tries": 0},
    },
    "split": {"random": {"split": "random"}, "half": {"split": "equal"}},
    "end": {"waves": {"termination": "counters"}, "ring": {"termination": "ring"}},
}
_ARITY = "arity"
_MAX_ARITY = 1024


def with_policies(settings: EngineSettings, text: str, name: str = "policies") -> EngineSettings:
    """Return the settings with the policies of `KEY=VALUE,...`.

    Raises UsageError with a message that begins with `name`, the origin of the text.
    """
    changes: dict[str, object] = {}
    seen: set[str] = set()
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{name}: invalid part '{part}': must be KEY=VALUE")
        if key in seen:
            raise UsageError(f"{name}: '{key}' is set twice")
        seen.add(key)
        if key == _ARITY:
            if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= _MAX_ARITY):
                limits = f"must be a number from 1 to {_MAX_ARITY}"
                raise UsageError(f"{name}: invalid {_ARITY} '{value}': {limits}")
            changes[_ARITY] = int(value)
        elif key not in _CHOICES:
            raise UsageError(f"{name}: unknown key '{key}'{_hint(key, [*_CHOICES, _ARITY])}")
        elif value not in _CHOICES[key]:
            raise UsageError(f"{name}: invalid {key} '{value}'{_hint(value, _CHOICES[key])}")
        else:
            changes |= _CHOICES[key][value]
    return msgspec.structs.replace(settings, **changes)


def _hint(word: str, known: Iterable[str]) -> str:
    words = list(known)
    near = get_close_matches(word, words, 1)
    suggestion = f"; did you mean '{near[0]}'?" if near else ""
    return f": must be one of {', '.join(words)}{suggestion}"
