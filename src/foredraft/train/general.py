"""Generated tasks of everyday kinds: ideas, explanations, letters, stories, advice, arithmetic, follow-up questions."""

from __future__ import annotations

import random
from collections.abc import Iterator

from foredraft.train.tasks import Task, answer, ask

_TOPIC_NAMES = (
    "gardening|baking bread|bird watching|public libraries|city buses|board games|long-distance running|bicycles|"
    "astronomy|beekeeping|photography|teaching children to read|saving energy at home|knitting|camping|old houses|"
    "learning languages|small shops|rivers|chess|museums|working from home|school trips|weather forecasts|dogs|cats|"
    "painting|woodworking|coffee|podcasts|volunteering|local history|maps|trees|night shifts|moving house|budgets|"
    "first aid|public speaking|science fairs|recycling|sleep|tea|markets|islands|night trains|swimming|newspapers|"
    "film festivals|novels|robots|databases|web servers|unit tests|command-line tools|sorting algorithms|caching|"
    "compilers|operating systems|computer networks|charts and diagrams|code review|version control|bridges|volcanoes|"
    "electric cars|the human heart|vaccines|the moon|oceans|glaciers|inflation|taxes|elections|the printing press|"
    "the Roman empire|ancient Egypt|jazz|opera|folk songs|football|tennis|mountain hiking|sailing|cheese|pasta|soups|"
    "vegetarian cooking|job interviews|meetings|time management|friendship|birthday parties|weddings|pets|aquariums|"
    "insects|butterflies|whales|dinosaurs|deserts|rain forests|clocks|batteries|solar panels|passwords|spam emails|"
    "encryption|machine learning|spreadsheets|phone cameras|second-hand clothes|furniture|paper planes|magic tricks|"
    "poetry|handwriting|diaries|libraries of things|community gardens|flea markets|lighthouses|castles|canals"
)
_TOPICS = tuple(_TOPIC_NAMES.split("|"))
_ASKS = {
    "ideas": (
        "Give me {n} ideas for a project about {topic}.",
        "Suggest {n} names for a club that is about {topic}, with a reason for each.",
        "How could I make {topic} more fun for teenagers? List {n} ways.",
        "Come up with {n} questions for a quiz about {topic}, with answers.",
    ),
    "explain": (
        "What should a beginner know about {topic}?",
        "Explain the basics of {topic} in simple words.",
        "Why are {topic} important? Give three reasons.",
        "What is the difference between {topic} and {other}?",
        "How has {topic} changed in the last fifty years?",
        "List common mistakes that people make with {topic} and how to avoid them.",
        "What are the advantages and disadvantages of {topic}?",
    ),
    "write": (
        "Write a short story about {topic}.",
        "Write a poem about {topic}.",
        "Write a blog post of about 150 words about {topic}.",
        "Write the opening paragraph of a novel in which {topic} and {other} play a part.",
        "Write a dialogue between two friends who disagree about {topic}.",
        "Describe {topic} for a travel magazine.",
    ),
    "letter": (
        "Write a friendly email that invites colleagues to an evening about {topic}.",
        "Write a letter to the mayor that asks for more support for {topic}.",
        "Write a polite complaint about a course on {topic} that was canceled.",
        "Draft a message to my team that says the workshop about {topic} moves to {day}.",
    ),
    "plan": (
        "Give a step by step plan for somebody who wants to start with {topic}.",
        "Plan a day for a family that is interested in {topic}.",
        "Make a table with three columns that compares {topic} and {other}.",
        "How do I prepare a ten minute talk about {topic}?",
    ),
    "code": (
        "Write a Python class that stores information about {topic}, with methods to add, remove and list entries.",
        "Write a small command line program in Python that keeps notes about {topic}.",
        "Write SQL tables for a web site about {topic} and one query over them.",
        "Write a JSON document that describes an event about {topic}.",
        "Write a short HTML page about {topic}.",
    ),
}
_FOLLOW_UPS = ("Can you give an example?", "Please say that in one sentence.", "Why is that?", "Tell me more about it.")
_REMARKS = (
    "{topic} are a good subject: people of all ages find something in them.",
    "There is a lot to say about {topic}. The most important thing is to begin small and to go on regularly.",
    "Many people are interested in {topic} because they can be shared with friends.",
)
_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jack")
_THINGS = ("apples", "pencils", "stamps", "marbles", "tickets", "books", "coins", "cookies")
_SUMS = (
    "{name} has {a} {things} and buys {b} more, then gives {c} to {friend}. How many {things} does {name} have now?",
    "A box holds {c} {things}. {name} fills {b} boxes and has {a} {things} left over. How many {things} are there?",
    "{name} reads {b} pages a day. How many days does a book of {product} pages take?",
    "{name} earns {a} euros an hour and works {c} hours a day for {b} days. How much is that in all?",
    "{name} and {friend} share {product} {things} equally among {b} children. How many does each child get?",
    "A train goes {a} kilometers in one hour. How far does it go in {c} hours?",
    "What is {a} plus {b}, times {c}?",
)
_WAYS = ("", " Explain step by step.", " Show your work.", " Answer with a short explanation.")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def general_tasks(rng: random.Random) -> Iterator[Task]:
    """Tasks without end."""
    while True:
        kind = rng.choice([*_ASKS, "arithmetic", "follow-up"])
        if kind == "arithmetic":
            yield kind, [ask(_arithmetic(rng))]
            continue
        topic, other = rng.sample(_TOPICS, 2)
        words = {"topic": topic, "other": other, "n": rng.choice((3, 5, 7, 8, 10)), "day": rng.choice(_DAYS)}
        if kind == "follow-up":
            first, remark = rng.choice(_ASKS["explain"]).format(**words), rng.choice(_REMARKS).format(**words)
            yield kind, [ask(first), answer(remark[0].upper() + remark[1:]), ask(rng.choice(_FOLLOW_UPS))]
        else:
            yield kind, [ask(rng.choice(_ASKS[kind]).format(**words))]


def _arithmetic(rng: random.Random) -> str:
    a, b, c = rng.randint(12, 90), rng.randint(2, 12), rng.randint(2, 9)
    name, friend = rng.sample(_NAMES, 2)
    numbers = {"a": a, "b": b, "c": c, "product": b * rng.randint(5, 40)}
    question = rng.choice(_SUMS).format(name=name, friend=friend, things=rng.choice(_THINGS), **numbers)
    return question + rng.choice(_WAYS)
