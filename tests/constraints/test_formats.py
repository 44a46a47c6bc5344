from __future__ import annotations

import pytest

from foredraft.constraints.formats import to_grammar
from foredraft.errors import RequestError


@pytest.mark.parametrize(
    ("format", "reason"),
    [
        ({}, r"response_format\.type is None; allowed is text, json_object, json_schema, regex, grammar"),
        ({"type": "xml"}, "type is 'xml'"),
        ({"type": ["regex"]}, "type is "),
        ("json_object", "type is None"),
        ({"type": "json_schema"}, "needs the field 'schema'"),
        ({"type": "json_object", "schema": {}}, "has the field 'schema'; type json_object takes none"),
        ({"type": "regex", "regex": "a", "flags": "i"}, "has the field 'flags'; type regex takes only 'regex'"),
        ({"type": "json_schema", "schema": '{"type": "string"}'}, r"response_format\.schema is .*give a JSON schema"),
        ({"type": "json_schema", "schema": {"const": float("nan")}}, "not plain JSON"),
        ({"type": "json_schema", "schema": {"const": object()}}, "not plain JSON"),
        ({"type": "regex", "regex": 5}, r"response_format\.regex is 5; give a string"),
        ({"type": "regex", "regex": "\ud800"}, "lone surrogate"),
        ({"type": "grammar", "grammar": "start: a\na[temperature=2]: /b/"}, "attributes in brackets"),
        ({"type": "grammar", "grammar": 'start: a\na [stop="x"]: /b/'}, "attributes in brackets"),
    ],
)
def test_what_is_refused(format, reason):
    with pytest.raises(RequestError, match=reason):
        to_grammar(format)


def test_brackets_inside_a_rule_are_no_attributes():
    assert to_grammar({"type": "grammar", "grammar": 'start: /[a-z]+/ ["!"]\n  | "[x]"'})


def test_text_is_no_constraint():
    assert to_grammar({"type": "text"}) is None
