"""How text is cut into words before byte-pair merges, by the name a GGUF file gives it (`tokenizer.ggml.pre`).

A name stands for regular expressions that are applied one after the other: each cuts every piece left by the one before
into its matches and what lies between them. The expressions are those of the models' own published tokenizers, as
listed in llama.cpp's src/llama-vocab.cpp; where llama.cpp approximates one that its regex engine cannot express
(tekken, gpt-4o), the published one stands here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from foredraft.errors import TokenizerError

# `'[sS]` and not `(?i:'s)`: case folding would also match U+017F, LATIN SMALL LETTER LONG S.
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS_SLASH}|{_SPACES}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS_SLASH}|{_SPACES}"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
_DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+",
    r"\p{N}",
)
_SMOLLM = (r"\p{N}", _GPT2)

# Expressions -> the names that mean them.
_NAMES: dict[tuple[str, ...], str] = {
    (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"): "default",
    (_GPT2,): "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 mellum gigachat a.x-4.0",
    _SMOLLM: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    (_LLAMA3,): "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe glm4 chatglm-bpe",
    (_QWEN2,): "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2",
    (_QWEN35,): "qwen35",
    _DEEPSEEK3: "deepseek-v3 hunyuan-dense joyai-llm",
    _DEEPSEEK_CODER: "deepseek-coder",
    (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"): "falcon",
    (_TEKKEN,): "tekken",
    (_GPT4O,): "gpt-4o llama4 kanana2 minimax-m2",
    (r"\p{N}{1,3}", rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_SYMBOLS}|{_SPACES}"): "minicpm5",
    (rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",): "seed-coder",
}
_PATTERNS = {name: patterns for patterns, names in _NAMES.items() for name in names.split()}
_LLAMA3_FAMILY = frozenset(["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"])
_WHOLE_WORDS = _LLAMA3_FAMILY | {"tekken", "minicpm5"}
_ADD_BOS = _LLAMA3_FAMILY | {"tekken"}


@dataclass(frozen=True)
class PreTokenization:
    """What a pre-tokenizer's name implies.

    `split` maps text to words in the byte-level alphabet. `whole_words`: a word that is itself a token becomes that
    token without merges. `add_bos`: the model wants a BOS token where its file does not say.
    """

    split: PreTokenizer
    whole_words: bool
    add_bos: bool


def pretokenization(name: str) -> PreTokenization:
    """The pre-tokenization called `name`.

    Raises:
        TokenizerError: the name is unknown; the message lists the known ones.
    """
    if name not in _PATTERNS:
        known = ", ".join(sorted(_PATTERNS))
        raise TokenizerError(f"the file's pre-tokenizer is {name!r}, which is not known; known are {known}")
    steps: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in _PATTERNS[name]]
    steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
    return PreTokenization(Sequence(steps), name in _WHOLE_WORDS, name in _ADD_BOS)
