"""Configuration from a TOML file and the command line into frozen dataclasses, strictly.

Each package owns the dataclass of its section; this module only loads, merges and prints them. A field made by
`option` is a key: its annotation says which values it takes (bool, int, float, str, Path, tuple[T, ...], or one of
these and None), its default what it is when nobody sets it. Other fields are not for files, and inherited ones belong
to the section of the class they come from. Where a section checks more in `__post_init__`, its ConfigErrors are passed
on with the names of file and section. A `Named` kind of section comes as often as the file says, each time under a name
of its own: [pools.interactive], [pools.batch].
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from foredraft.errors import ConfigError

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Named:
    """A kind of section of which there are as many as the file names, in its order; none by default."""

    section: type[Any]


Sections = Mapping[str, type[Any] | Named]  # by name; each a dataclass with a default for every field


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] | None = None,
) -> Any:
    """A dataclass field with its description; numbers are kept within both ends of the range, texts to the choices."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum, "choices": choices})


@dataclass(frozen=True)
class Key:
    """A key of a section, as read off its dataclass field. `type` is without None, for which there is no TOML."""

    name: str
    type: Any
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: Sequence[str] | None = None

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        is_list = get_origin(self.type) is tuple
        words = ", ".join(self.choices) if self.choices else WORDS[get_args(self.type)[0] if is_list else self.type]
        if self.minimum is not None:
            words += f", {self.minimum} " + ("or more" if self.maximum is None else f"to {self.maximum}")
        elif self.maximum is not None:
            words += f", up to {self.maximum}"
        return f"a list, each {words}" if is_list else words

    def take(self, value: object) -> Any:
        """The value as its type has it: a list becomes a tuple, text a Path, a whole number a float.

        Raises:
            ConfigError: it is not allowed; the message begins with the key and says what is.
        """
        try:
            if get_origin(self.type) is not tuple:
                return self._take(value, self.type)
            if not isinstance(value, list | tuple):
                raise ValueError
            return tuple(self._take(item, get_args(self.type)[0]) for item in value)
        except (ValueError, OverflowError):
            raise ConfigError(f"{self.name} is {_shown(value)}; allowed is {self.allowed}", self.name) from None

    def _take(self, value: Any, type_: Any) -> Any:
        if type_ is bool and isinstance(value, bool):
            return value
        if type_ is str and isinstance(value, str) and (self.choices is None or value in self.choices):
            return value
        if type_ is Path and isinstance(value, str | Path) and str(value):
            return Path(value)
        if type_ in (int, float) and isinstance(value, int | type_) and not isinstance(value, bool):
            low = -math.inf if self.minimum is None else self.minimum
            high = math.inf if self.maximum is None else self.maximum
            if low <= value <= high and abs(value) != math.inf:
                return type_(value)
        raise ValueError


def keys(section: type[Any]) -> dict[str, Key]:
    """The keys that a section's dataclass adds itself, by name."""
    hints, own = get_type_hints(section), inspect.get_annotations(section)
    found = {}
    for each in fields(section):
        if each.name not in own or "help" not in each.metadata:
            continue
        without_none = [t for t in get_args(hints[each.name]) if t is not type(None)]
        type_ = without_none[0] if type(None) in get_args(hints[each.name]) else hints[each.name]
        found[each.name] = Key(each.name, type_, each.default, **each.metadata)
    return found


def check(section: Any) -> None:
    """For a section's `__post_init__`: hold every field to its annotation, range and choices, wherever it was made.

    Raises:
        ConfigError: a value is not allowed.
    """
    for key in (key for cls in type(section).__mro__ if is_dataclass(cls) for key in keys(cls).values()):
        value = getattr(section, key.name)
        if value is not None or key.default is not None:
            key.take(value)


def load(
    sections: Sections, path: Path | None = None, overrides: Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, Any]:
    """The effective configuration: defaults, then the file, then `overrides`.

    It has an object for each section; for a Named one, a dict of objects by name. overrides: by section and key, what
    was given on the command line (leave out what was not).

    Raises:
        ConfigError: the file cannot be read or is not TOML, a section or key is unknown, or a value is not allowed.
    """
    config = {name: {} if isinstance(kind, Named) else kind() for name, kind in sections.items()}
    if path is not None:
        try:
            config = _merge(sections, config, _read(path))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    return _merge(sections, config, overrides or {})


def dump(config: Mapping[str, Any]) -> str:
    """TOML that `load` reads back as equal objects, each key below its description."""
    lines: list[str] = []
    for name, value in config.items():
        named = {f"{name}.{own}": each for own, each in value.items()} if isinstance(value, Mapping) else {name: value}
        lines += [line for title, section in named.items() for line in _dumped(title, section)]
    return "\n".join(lines)


def _dumped(title: str, section: Any) -> Iterator[str]:
    import tomli_w

    yield from (f"[{title}]", "")
    for key in keys(type(section)).values():
        yield from textwrap.wrap(key.help, 116, initial_indent="# ", subsequent_indent="# ")
        value = getattr(section, key.name)
        if value is None:
            yield f"# {key.name} is not set"
        else:
            yield tomli_w.dumps({key.name: str(value) if isinstance(value, Path) else value}).rstrip()
        yield ""


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text; convert it first") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"the file is not TOML: {error}") from None


def _merge(sections: Sections, config: Mapping[str, Any], given: Mapping[str, object]) -> dict[str, Any]:
    """The configuration with the given values in place of its own."""
    merged = dict(config)
    for name, values in given.items():
        if not isinstance(values, Mapping):
            raise ConfigError(f"key {name} is outside of any section; {_home(name, sections)}")
        if name not in sections:
            raise ConfigError(f"unknown section [{name}]; {_nearest(name, sections)}")
        kind = sections[name]
        if isinstance(kind, Named):
            merged[name] = {**config[name]}
            for own, its_values in values.items():
                section = config[name].get(own) or kind.section()
                merged[name][own] = _changed(f"{name}.{own}", section, _of_its_own(name, own, its_values), sections)
        else:
            merged[name] = _changed(name, config[name], values, sections)
    return merged


def _of_its_own(kind: str, name: str, values: object) -> Mapping[str, object]:
    """The values of a named section."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"[{kind}] key {name} is in no section with a name of its own, such as [{kind}.some-name]")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"[{kind}] name {_shown(name)}; allowed are up to 64 letters (a to z), digits, - and _")
    return values


def _changed(title: str, section: Any, values: Mapping[str, object], sections: Sections) -> Any:
    """A section with the given values in place of its own."""
    known = keys(type(section))
    for key in values:
        if key not in known:
            raise ConfigError(f"[{title}] unknown key {key}; {_home(key, sections, known)}")
    try:
        return replace(section, **{key: known[key].take(value) for key, value in values.items()})
    except ConfigError as error:
        raise ConfigError(f"[{title}] {error}") from None


def _home(name: str, sections: Sections, known: Iterable[str] = ()) -> str:
    """Where an unplaced key belongs: into another section, or near a known key of its own."""
    for section, kind in sections.items():
        if name in (section, *keys(kind.section if isinstance(kind, Named) else kind)):
            return f"it belongs to [{section}{'.NAME' if isinstance(kind, Named) else ''}]"
    return _nearest(name, known or sections)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
