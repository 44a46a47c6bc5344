"""Options that several commands share, and the objects that are made from them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.core import SamplingParams, Speculation
    from foredraft.engine.llm import LLM

Command = TypeVar("Command", bound=Callable[..., Any])

_DRAFT = [
    click.option("--draft", metavar="MODEL", help="A smaller model with the same tokenizer, to draft with."),
    click.option(
        "--draft-vocabulary",
        metavar="N|FILE",
        help="Tokens that the draft model drafts from, beside those of the context: the N lowest ids, or those of a "
        "file that `train vocabulary` made; default: all.",
    ),
]
_DRAFTER = click.option(
    "--drafter",
    multiple=True,
    metavar="PATH",
    help="A learned drafter for the model: a GGUF file or a directory (docs/drafters.md). Can be repeated.",
)

_CONTEXT = click.option(
    "--context",
    type=int,
    metavar="N",
    help="Longest prompt plus answer, in tokens; default: the model's own, up to 8192.",
)
_THREADS = click.option("--threads", type=int, metavar="N", help="Threads to compute with; default: one per core.")

_SPECULATION = [
    click.option(
        "--speculation",
        type=click.Choice(["off", "auto", "on"]),
        default="auto",
        show_default=True,
        help="Whether to draft: auto drafts where it pays, on always, off never.",
    ),
    click.option(
        "--k", type=int, help="Most tokens to draft in one step; default: 4 where it is on, 31 where it is auto."
    ),
    click.option(
        "--tree-width",
        type=int,
        metavar="N",
        help="Most tokens to draft for one place, as a tree; 1: chains. Default: 1 where it is on, 3 where it is auto.",
    ),
    click.option(
        "--proposer",
        metavar="A,B",
        help="Who drafts: names in order, the first with a draft wins. Default: suffix, lookup, drafters, draft_model.",
    ),
    click.option(
        "--rule",
        type=click.Choice(["exact", "rejection", "block"]),
        default="exact",
        show_default=True,
        help="How drafts are accepted. exact: the same bytes as without drafts; the others: the same distribution.",
    ),
]

_SAMPLING = [
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0 takes the most likely token."),
    click.option("--top-k", type=int, default=0, show_default=True, help="Keep the k most likely tokens; 0: off."),
    click.option("--top-p", type=float, default=1.0, show_default=True, help="Keep this much probability; 1: off."),
    click.option(
        "--min-p", type=float, default=0.0, show_default=True, help="Drop tokens below this share of the top; 0: off."
    ),
    click.option("--repetition-penalty", type=float, default=1.0, show_default=True, help="Over prompt and output."),
    click.option("--presence-penalty", type=float, default=0.0, show_default=True, help="Over the output."),
    click.option("--frequency-penalty", type=float, default=0.0, show_default=True, help="Over the output."),
    click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Add to a token's logit. Can be repeated."),
    click.option("--min-tokens", type=int, default=0, show_default=True, help="No end before this many tokens."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. Can be repeated."),
    click.option("--stop-token", type=int, multiple=True, metavar="ID", help="End at this token. Can be repeated."),
    click.option("--ignore-eos", is_flag=True, help="Do not end at the model's own end-of-text token."),
    click.option("--seed", type=int, help="Same seed, same text; default: a fresh one."),
]


def _all(options: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def model_options(
    context: bool = True, threads: bool = True, required: bool = True, drafters: bool = True
) -> Callable[[Any], Any]:
    """--model, --draft and its vocabulary, --drafter, --context where it means something, and --threads unless the
    command has its own."""
    model = click.option(
        "--model", required=required, metavar="MODEL", help="Catalog name (`foredraft pull --list`) or GGUF file."
    )
    return _all([model, *_DRAFT, *[_DRAFTER] * drafters, *[_CONTEXT] * context, *[_THREADS] * threads])


speculation_options: Callable[[Any], Any] = _all(_SPECULATION)
sampling_options: Callable[[Any], Any] = _all(_SAMPLING)


def max_tokens_option(default: int) -> Callable[[Any], Any]:
    return click.option("--max-tokens", type=int, default=default, show_default=True, help="Longest answer, in tokens.")


def split_names(text: str | None) -> tuple[str, ...]:
    """Names of a comma-separated list, blanks around them dropped; empty for None."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def positive_integers(text: str, name: str) -> tuple[int, ...]:
    """Numbers of a comma-separated list.

    Raises:
        ConfigError: one of them is not a whole number of 1 or more; the message names the option.
    """
    try:
        numbers = tuple(int(part) for part in split_names(text))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{name} is {text!r}; allowed is a comma-separated list of whole numbers from 1")
    return numbers


def temperatures(text: str) -> tuple[float, ...]:
    """Temperatures of a comma-separated list.

    Raises:
        ConfigError: one of them is no number; whether it is allowed is for SamplingParams to say.
    """
    try:
        found = tuple(float(part) for part in split_names(text))
    except ValueError:
        found = ()
    if not found:
        raise ConfigError(f"--temperature is {text!r}; allowed is a comma-separated list of numbers from 0 to 2")
    return found


def _logit_bias(pairs: tuple[str, ...]) -> Mapping[int, float]:
    biases = {}
    for pair in pairs:
        token, _, bias = pair.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise ConfigError(f"--logit-bias is {pair!r}; give a token id and a number, such as 42=-100") from None
    return biases


def sampling_params(options: Mapping[str, Any]) -> SamplingParams:
    """SamplingParams from the options of a command (names as click gives them; missing ones keep their default)."""
    from foredraft.core import SamplingParams

    values = {name: options[name] for name in SamplingParams.__dataclass_fields__ if name in options}
    values["logit_bias"] = _logit_bias(options["logit_bias"])
    values["stop_token_ids"] = options["stop_token"]
    if values["seed"] is None:
        values["seed"] = secrets.randbits(53)  # drawn here to be reported; every reader of JSON keeps 53 bits
    return SamplingParams(**values)


def speculation(options: Mapping[str, Any]) -> Speculation:
    from foredraft.core import Speculation

    return Speculation(
        mode=options["speculation"],
        k=options["k"],
        proposers=split_names(options["proposer"]),
        rule=options["rule"],
        tree_width=options["tree_width"],
    )


@contextmanager
def loaded(options: Mapping[str, Any], **more: Any) -> Iterator[LLM]:
    """The model that the options of `model_options` describe; closed at the end.

    `--proposer`, where the command has it, says what to load. `more` goes to LLM as it is and wins.
    """
    from foredraft.engine.llm import LLM

    settings = {
        "draft_vocabulary": options["draft_vocabulary"],
        "drafters": options["drafter"],
        "context_length": options["context"],
        "threads": options["threads"],
        "proposers": split_names(options.get("proposer")) or None,
    }
    llm = LLM(options["model"], options["draft"], **{**settings, **more})
    try:
        yield llm
    finally:
        llm.close()


def model_names(options: Mapping[str, Any]) -> dict[str, str]:
    """What is loaded, as it was named, by role: "model", and where there is one "draft" and "drafter N"."""
    names = {role: options[role] for role in ("model", "draft") if options[role]}
    return names | {f"drafter {number}": path for number, path in enumerate(options["drafter"], 1)}


def default_proposers(options: Mapping[str, Any]) -> list[str]:
    """Who drafts where nothing else is said, in order."""
    from foredraft.proposers import FREE

    return [*FREE, *model_proposers(options)]


def model_proposers(options: Mapping[str, Any]) -> list[str]:
    """Those of them that run a model: the drafters by their kind, and the draft model."""
    from foredraft.drafters import checkpoint

    kinds = (checkpoint.read(path).kind for path in options["drafter"])
    return [*kinds, *(["draft_model"] if options["draft"] else [])]


def prompt_tokens(llm: LLM, prompt: str, raw: bool) -> list[int]:
    """The prompt as token ids: through the chat template of the model's file where it has one, unless `raw`."""
    return conversation_tokens(llm, [prompt], raw)


def conversation_tokens(llm: LLM, said: Sequence[str], raw: bool) -> list[int]:
    """What user and model have said by turns, the user first and last, as token ids; see `prompt_tokens`."""
    if raw or not llm.has_chat_template:
        return llm.tokenizer.encode("\n\n".join(said), parse_special=True)
    roles = ("user", "assistant")
    return llm.chat_tokens([{"role": roles[turn % 2], "content": text} for turn, text in enumerate(said)])
