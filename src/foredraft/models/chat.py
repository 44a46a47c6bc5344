"""Messages to prompt tokens, by the chat template in the model's file.

What users write must not steer the format: the string of a control token inside a message stays text. So before the
template runs, each such string is broken by a marker character that occurs nowhere else; afterwards the template's own
control tokens are cut out, and the marker is taken from the text between them before that is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Self

from foredraft.errors import TemplateError
from foredraft.models.conversation import Message, Tool, checked_messages, checked_tools, strings
from foredraft.models.special_tokens import Fragment, SpecialTokenFinder
from foredraft.models.template_process import TemplateProcess
from foredraft.models.tokenizer import Tokenizer

_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class ChatTemplate:
    """A model's chat template (Jinja, in Hugging Face's dialect), bound to its tokenizer. Safe to share.

    A template is a program from a file and runs in a process of its own, with bounded time and memory
    (template_worker.py says why).
    """

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self._source = source
        self._tokenizer = tokenizer
        self._process = TemplateProcess(source)
        self._guard = _Guard(tokenizer.special)
        self._special_texts = {
            name: tokenizer.tokens[tokenizer.named_ids[role]]
            for role, name in _NAMES.items()
            if role in tokenizer.named_ids
        }

    @classmethod
    def from_source(cls, source: str | None, tokenizer: Tokenizer) -> Self:
        """The template `source`, which is a GGUF file's `tokenizer.chat_template`.

        Raises:
            TemplateError: the file has none (`source` is None or empty).
        """
        if not source:
            raise TemplateError("this file has no chat template; it is probably a base model; use generate")
        return cls(source, tokenizer)

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, tools: Sequence[Tool] = ()
    ) -> list[int]:
        """The prompt for `messages` ({"role": ..., "content": ...}, oldest first) as token ids.

        Messages and `tools`, the functions that may be called, are those of the OpenAI API. `add_generation_prompt`
        opens the assistant's next message.

        Raises:
            TemplateError: the messages or tools are malformed (the message says which and how), the template does not
                know tools, or it is broken, refuses the messages, or needs too much time or memory.
            TokenizerError: a message holds a lone surrogate, so it is not Unicode text.
        """
        text, marker = self._marked_text(messages, add_generation_prompt, tools)
        tokenizer = self._tokenizer
        fragments: list[Fragment] = []
        for fragment in tokenizer.cut(text, parse_special=True):
            if isinstance(fragment, int):
                fragments.append(fragment)
            else:
                fragments += tokenizer.cut(fragment.replace(marker, ""), parse_special=False)
        ids = tokenizer.encode_fragments(fragments)
        if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
            ids.insert(0, tokenizer.bos_id)
        return ids

    def render_text(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, tools: Sequence[Tool] = ()
    ) -> str:
        """What `render` encodes, as text to look at; it no longer tells control tokens from text that spells them."""
        text, marker = self._marked_text(messages, add_generation_prompt, tools)
        return text.replace(marker, "")

    def _marked_text(self, messages: Sequence[Message], opened: bool, tools: Sequence[Tool]) -> tuple[str, str]:
        """What the template makes of it, and the marker in it."""
        checked, functions = checked_messages(messages), checked_tools(tools)
        self._check_tools_are_known(checked, functions)
        marker = self._unused_character(checked, functions)
        variables = {
            "messages": [{**self._guard.protect(message, marker), "role": self._role(message)} for message in checked],
            "tools": self._guard.protect(functions, marker) or None,
            "documents": None,
            "add_generation_prompt": opened,
            **self._special_texts,
        }
        return self._process.render(variables), marker

    def _check_tools_are_known(self, messages: Sequence[Message], tools: Sequence[Tool]) -> None:
        uses_tools = tools or any(message["role"] == "tool" or "tool_calls" in message for message in messages)
        if uses_tools and not re.search(r"\btools\b", self._source):
            raise TemplateError(
                "this model's chat template does not know tools; leave them and their messages out or use another "
                "model",
                "tools" if tools else "messages",
            )

    def _role(self, message: Message) -> str:
        """A template that does not know the developer, who took the system's place, would leave the message out."""
        role = str(message["role"])
        return "system" if role == "developer" and role not in self._source else role

    def _unused_character(self, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        texts = chain(strings(messages), strings(tools), self._tokenizer.special, (self._source,))
        used = frozenset(chain.from_iterable(texts))
        marker = next((chr(code) for code in chain(*_PRIVATE_USE) if chr(code) not in used), None)
        if marker is None:
            raise TemplateError("the messages use every private-use character of Unicode; one has to be left")
        return marker


class _Guard:
    """Breaks the strings of control tokens inside what users write."""

    def __init__(self, special: Mapping[str, int]) -> None:
        breakable = {text: id for text, id in special.items() if len(text) > 1}
        self._texts = {id: text for text, id in breakable.items()}
        self._finder = SpecialTokenFinder(breakable)
        self._beginnings = {text[:length] for text in breakable for length in range(1, len(text))}
        self._ends = {text[length:] for text in breakable for length in range(1, len(text))}
        self._longest = max(map(len, breakable), default=0)

    def protect(self, value: Any, marker: str) -> Any:
        """`value`, a message or another JSON value, with every string in it broken by `marker` where needed."""
        if isinstance(value, str):
            return self._protect_ends(self._break(value, marker), marker)
        if isinstance(value, Mapping):
            return {self._break(str(key), marker): self.protect(item, marker) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item, marker) for item in value]
        return value

    def _break(self, text: str, marker: str) -> str:
        # Again until nothing is left: breaking one token may leave another that overlapped it.
        while len(fragments := self._finder.cut(text)) > 1 or not all(isinstance(f, str) for f in fragments):
            text = "".join(f if isinstance(f, str) else self._broken(f, marker) for f in fragments)
        return text

    def _broken(self, token: int, marker: str) -> str:
        return self._texts[token][0] + marker + self._texts[token][1:]

    def _protect_ends(self, text: str, marker: str) -> str:
        """A token may also be put together from the end of one message and the start of the next. The marker goes
        inside the surrounding space, which templates like to trim."""
        core = text.strip()
        if not core:
            return text
        before, _, after = text.partition(core)
        lengths = range(1, self._longest)
        if any(core[:length] in self._ends for length in lengths):
            before += marker
        if any(core[-length:] in self._beginnings for length in lengths):
            after = marker + after
        return before + core + after
