"""Tasks over an excerpt of code or docs: what people ask about code that they paste."""

from __future__ import annotations

import random

from foredraft.train.packages import Excerpt

Task = tuple[str, list[dict[str, str]]]  # its kind, and the conversation

# kind: (how often, ways to ask). {name} is that of the function or class, {doc} its docstring.
_CODE = {
    "write": (
        30,
        (
            "Write a Python function `{name}` that does this: {doc}",
            "Implement `{name}` in Python. {doc}",
            "I need a Python function called {name}. Its documentation should be:\n{doc}\nPlease write it.",
        ),
    ),
    "explain": (
        14,
        (
            "Explain what this code does, step by step.",
            "What does this do? Answer in one short paragraph.",
            "Explain this code to somebody who learns Python.",
        ),
    ),
    "edit": (
        40,
        (
            "Add type hints to this code and return the whole code, nothing else.",
            "Add a docstring to this code. Reply with the whole code only.",
            "Rename the first parameter to `item` everywhere in this code. Return the whole code.",
            "Rename `{name}` to `{other}` in this code and print it in full.",
            "Add comments to this code where they help. Return the complete code.",
            "Make this code easier to read without changing what it does. Return all of it.",
        ),
    ),
    "review": (
        8,
        (
            "Is there a bug in this code? Explain, then give the corrected code.",
            "Review this code and suggest three improvements.",
        ),
    ),
    "test": (8, ("Write unit tests with pytest for this code.", "Give three examples of how this code is called.")),
}
_DOCS = {
    "summarize": ("Summarize this text in two sentences.", "What are the main points of this text? Use a list."),
    "rewrite": ("Rewrite this text in simple words.", "Rewrite this text so that it is half as long."),
    "translate": ("Translate this text into {language}.", "Translate the following into {language}."),
    "answer": (
        "Read this text, then write two questions about it and answer them.",
        "According to this text, what is this for? Answer in a full sentence and quote the part that says so.",
    ),
    "quote": ("Quote the most important sentence of this text word for word.", "Copy the first paragraph exactly."),
}
_LANGUAGES = ("German", "French", "Spanish", "Italian", "Portuguese", "Dutch")
_VERBS = ("compute", "handle", "process", "build", "prepare", "collect")


def ask(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def code_task(excerpt: Excerpt, rng: random.Random) -> Task:
    kinds = [kind for kind in _CODE if kind != "write" or excerpt.doc]
    [kind] = rng.choices(kinds, [_CODE[kind][0] for kind in kinds])
    question = rng.choice(_CODE[kind][1])
    other = f"{rng.choice(_VERBS)}_{excerpt.name.strip('_').lower()}"
    question = question.format(name=excerpt.name, doc=excerpt.doc[:500], other=other)
    return kind, [ask(question if kind == "write" else f"{question}\n\n```python\n{excerpt.text}\n```")]


def docs_task(excerpt: Excerpt, rng: random.Random) -> Task:
    kind = rng.choice(list(_DOCS))
    question = rng.choice(_DOCS[kind]).format(language=rng.choice(_LANGUAGES))
    if rng.random() < 0.2:  # a conversation that goes on
        return kind, [
            ask(excerpt.text),
            answer("Thank you. What would you like to know about this text?"),
            ask(question),
        ]
    return kind, [ask(f"{question}\n\n{excerpt.text}")]
