"""Writes chat.json beside this file: chat templates, conversations, and the text that transformers makes of them.

    python tests/data/make_chat_oracle.py NAME=MODEL.gguf ...

Needs the packages gguf and transformers. Each case holds the template's name and the arguments of a rendering.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import transformers
from gguf import GGUFReader
from transformers.utils.chat_template_utils import render_jinja_template

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a <city> & "more" \u2014 \u00e9',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "R\u00f3ma"}}}
CONVERSATIONS = {
    "one question": [{"role": "user", "content": "Hi"}],
    "system and several turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "  2+2?\n"},
    ],
    "calls": [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"c": 21}'},
        {"role": "tool", "content": "sunny"},
    ],
}
DIALECT = """{% generation %}{{ bos_token }}
  {% for m in messages %}
    {{ m.content | trim }}
  {% if loop.index == 2 %}{% break %}{% endif %}
{% endfor %}{{ {'a': [1, '\u00e9<']} | tojson(indent=2) }}{% endgeneration %}{{ eos_token }}"""
TOKENS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def main() -> None:
    templates = {"dialect": DIALECT}
    for name, model in (argument.split("=", 1) for argument in sys.argv[1:]):
        field = GGUFReader(model).fields["tokenizer.chat_template"]
        templates[name] = bytes(field.parts[field.data[0]]).decode()
    cases = []
    for name, source in templates.items():
        for title, messages in CONVERSATIONS.items():
            for tools in (None, [TOOL]):
                for opened in (True, False):
                    texts, _ = render_jinja_template(
                        [messages], tools=tools, chat_template=source, add_generation_prompt=opened, **TOKENS
                    )
                    case = {"template": name, "title": title, "messages": messages, "tools": tools, "opened": opened}
                    cases.append(case | {"text": texts[0]})
    made_by = f"transformers {transformers.__version__}"
    path = Path(__file__).with_name("chat.json")
    path.write_text(json.dumps({"made_by": made_by, "templates": templates, "cases": cases}, indent=1) + "\n")
    print(f"{path}: {len(cases)} cases")


if __name__ == "__main__":
    main()
