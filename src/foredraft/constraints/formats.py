"""What a caller writes as `response_format`, checked and turned into a grammar in llguidance's own notation.

Formats are `{"type": "text"}` (no constraint), `{"type": "json_object"}`, `{"type": "json_schema", "schema": {...}}`,
`{"type": "regex", "regex": "..."}` and `{"type": "grammar", "grammar": "..."}` (Lark, as llguidance reads it).

JSON is written on one line, with one space after each comma and colon. Free white space would let a model go on with
blanks for ever, and what is fixed is forced, so it costs no pass of the target when it is drafted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from foredraft.errors import RequestError

ResponseFormat = Mapping[str, Any]

MAX_CHARS = 1 << 16  # of a schema (as JSON), a regular expression or a grammar
_FIELD_OF = {"text": None, "json_object": None, "json_schema": "schema", "regex": "regex", "grammar": "grammar"}
_SCHEMA = "response_format.schema"
_JSON_STYLE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Such as `name[temperature=0.5]:`. They change sampling, or take back text that is already out.
_RULE_ATTRIBUTES = re.compile(r"^\s*[?!]*\w+(\.-?\d+)?\s*\[", re.MULTILINE)


def field_name(response_format: ResponseFormat) -> str:
    """Where in `response_format` the user wrote what has to be matched, for messages."""
    field = _FIELD_OF[response_format["type"]]
    return f"response_format.{field}" if field else "response_format"


def to_grammar(response_format: ResponseFormat) -> str | None:
    """The grammar of a format; None for text, which may be anything. Whether it compiles is not checked.

    Raises:
        RequestError: the type is unknown, a field is missing, unknown or of the wrong type, or it is too long.
    """
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELD_OF:
        allowed = ", ".join(_FIELD_OF)
        raise RequestError(f"response_format.type is {kind!r}; allowed is {allowed}", "response_format.type")
    field = _FIELD_OF[kind]
    unknown = sorted(set(response_format) - {"type", field}, key=str)
    if unknown:
        raise RequestError(
            f"response_format has the field {unknown[0]!r}; type {kind} takes {f'only {field!r}' if field else 'none'}",
            "response_format",
        )
    if field is not None and field not in response_format:
        raise RequestError(f"response_format of type {kind} needs the field {field!r}", "response_format")
    value = response_format[field] if field else {"type": "object"}
    if kind == "text":
        return None
    return _json(value) if kind in ("json_object", "json_schema") else _text(kind, value)


def _json(schema: Any) -> str:
    from llguidance import LLMatcher

    if not isinstance(schema, Mapping):
        raise RequestError(f"response_format.schema is {schema!r:.80}; give a JSON schema, an object", _SCHEMA)
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise RequestError(f"response_format.schema is not plain JSON ({exc})", _SCHEMA) from exc
    _check_length("schema", text)
    try:
        return LLMatcher.grammar_from_json_schema(text, defaults=_JSON_STYLE)
    except ValueError as exc:  # nested deeper than its JSON reader goes
        raise RequestError(f"response_format.schema cannot be read: {exc}", _SCHEMA) from exc


def _text(kind: str, value: Any) -> str:
    from llguidance import LLMatcher

    if not isinstance(value, str):
        raise RequestError(f"response_format.{kind} is {value!r:.80}; give a string", f"response_format.{kind}")
    _check_length(kind, value)
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        field = f"response_format.{kind}"
        raise RequestError(f"{field} holds a lone surrogate at character {exc.start}", field) from exc
    if kind == "regex":
        return LLMatcher.grammar_from_regex(value)
    if _RULE_ATTRIBUTES.search(value):
        raise RequestError(
            "response_format.grammar has a rule with attributes in brackets; they are not supported",
            "response_format.grammar",
        )
    return LLMatcher.grammar_from_lark(value)


def _check_length(field: str, text: str) -> None:
    if len(text) > MAX_CHARS:
        where = f"response_format.{field}"
        raise RequestError(f"{where} has {len(text)} characters; allowed are {MAX_CHARS}", where)
