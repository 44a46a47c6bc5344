"""Log probabilities in OpenAI's two forms. Token texts are those of the token alone; special tokens show their name."""

from __future__ import annotations

from collections.abc import Iterable

from foredraft.engine.sequence import Chunk
from foredraft.models.detokenizer import Detokenizer
from foredraft.models.tokenizer import Tokenizer
from foredraft.server.responses import ChatLogprobs, CompletionLogprobs, LikelyToken, TokenLogprob


def chat_logprobs(chunks: Iterable[Chunk], tokenizer: Tokenizer) -> ChatLogprobs:
    content = []
    for chunk in chunks:
        assert chunk.logprobs is not None
        token, data = _token(tokenizer, chunk.token_id)
        top = [
            LikelyToken(token=text, logprob=logprob, bytes=list(raw))
            for (text, raw), logprob in ((_token(tokenizer, id), logprob) for id, logprob in chunk.logprobs.top)
        ]
        content.append(TokenLogprob(token=token, logprob=chunk.logprobs.logprob, bytes=list(data), top_logprobs=top))
    return ChatLogprobs(content=content)


class CompletionLogprobsForm:
    """The form of /v1/completions. One per choice: it counts characters, for the offsets of tokens in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._num_characters = 0

    def add(self, chunks: Iterable[Chunk]) -> CompletionLogprobs:
        """The next tokens' part. Of several likely tokens with the same text, the likeliest is named."""
        made = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=None, text_offset=[])
        for chunk in chunks:
            assert chunk.logprobs is not None
            made.tokens.append(self._name(chunk.token_id))
            made.token_logprobs.append(chunk.logprobs.logprob)
            made.text_offset.append(self._num_characters)
            self._num_characters += len(self._detokenizer.add(chunk.token_id))
            if chunk.logprobs.top:
                likely = {self._name(id): logprob for id, logprob in reversed(chunk.logprobs.top)}
                made.top_logprobs = [*(made.top_logprobs or ()), dict(reversed(likely.items()))]
        return made

    def _name(self, token: int) -> str:
        text, data = _token(self._tokenizer, token)
        return text if text.encode() == data else f"bytes:{text}"


def _token(tokenizer: Tokenizer, token: int) -> tuple[str, bytes]:
    """A token's text and bytes; bytes that are no text of their own are written as \\xe2\\x80."""
    data = tokenizer.token_bytes(token, show_special=True)
    try:
        return data.decode(), data
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data), data
