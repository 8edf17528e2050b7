"""The configuration of a scheduler as a mapping, in which a change counts at once."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

_ROOT = "load_balancing"


class Section(Dict[str, Any]):
    """One group of settings. Setting a key applies it; a mistake is refused and changes nothing."""

    def __init__(self, values: Mapping[str, Any], apply: Callable[[], None]) -> None:
        super().__init__(values)
        self._apply = apply

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *arguments: Any, **keywords: Any) -> None:
        """Sets several keys together: all of them or none."""
        before = dict(self)
        super().update(*arguments, **keywords)
        try:
            self._apply()
        except Exception:
            super().clear()
            super().update(before)
            raise

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"every setting has a value: set {key!r} instead of deleting it")

    def __reduce__(self) -> Any:
        return (dict, (dict(self),))


class Config(Section):
    """All settings, by group. ``config["load_balancing"]`` is the same mapping, as in the file."""

    def __init__(self, yaml: str, reload: Callable[[str], None]) -> None:
        self._reload = reload
        self._ready = False
        super().__init__({}, self._send)
        for group, key, value in _entries(yaml):
            if group is None:
                dict.__setitem__(self, key, value)
            else:
                section = self.setdefault(group, Section({}, self._send))
                dict.__setitem__(section, key, value)
        self._ready = True

    def _send(self) -> None:
        if self._ready:
            self._reload(json.dumps({_ROOT: self}))

    def __missing__(self, key: str) -> Any:
        if key == _ROOT:
            return self
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key == _ROOT or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self[key] if key in self else default


def _entries(yaml: str) -> Iterator[Tuple[Optional[str], str, Any]]:
    """Group, key and value of each line of a file that the scheduler wrote."""
    group: Optional[str] = None
    for line in yaml.splitlines()[1:]:
        key, _, text = line.strip().partition(":")
        if not text.strip():
            group = key
            continue
        indented = line.startswith("    ")
        yield (group if indented else None), key, _value(text.strip())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
