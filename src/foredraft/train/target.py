"""What a head borrows from its target's file, as float32: embeddings, the output's norm and rows, the last layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.errors import ConfigError
from foredraft.models import architecture, catalog, gguf
from foredraft.models.architecture import Architecture
from foredraft.models.compatibility import tokens_sha256
from foredraft.models.gguf import GGUFFile
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quants
from foredraft.provenance import identity
from foredraft.train.shards import Meta


@dataclass(frozen=True)
class TargetWeights:
    """A target's file, of which only what is asked for is dequantized.

    rope_base: of its last layer's rotary embedding.
    """

    path: Path
    arch: Architecture
    vocab_size: int
    tokenizer_sha256: str
    rope_base: float
    _file: GGUFFile

    @classmethod
    def read(cls, name: str) -> TargetWeights:
        """Raises ModelError where the file cannot be used."""
        path = catalog.resolve(name)
        file = gguf.read(path)
        arch = architecture.read(file)
        embedding = file.tensor("token_embd.weight")
        return cls(
            path=path,
            arch=arch,
            vocab_size=embedding.shape[0],
            tokenizer_sha256=tokens_sha256(Tokenizer.from_metadata(file.metadata)),
            rope_base=file.get(f"{arch.name}.rope.freq_base", float, default=10_000.0),
            _file=file,
        )

    def check(self, meta: Meta, folder: Path) -> None:
        """Raises ConfigError where data is not this target's."""
        if meta.target != identity(self.path):
            raise ConfigError(
                f"{folder} holds answers of {meta.target.get('file')}, the target is {self.path.name} (or another "
                "version of it); make data with this target"
            )

    def embeddings(self, tokens: IntArray) -> FloatArray:
        """float32 [tokens, hidden]."""
        return quants.rows(self._file.tensor("token_embd.weight"), tokens)

    def output_rows(self, tokens: IntArray) -> FloatArray:
        """The rows of the output matrix that score these tokens, float32 [tokens, hidden]."""
        tied = "output.weight" not in self._file.tensors
        return quants.rows(self._file.tensor("token_embd.weight" if tied else "output.weight"), tokens)

    def output_norm(self) -> FloatArray:
        return self._values("output_norm.weight")

    def last_layer(self) -> Mapping[str, FloatArray]:
        """Matrices and norms of the last layer by their names in the file, such as "attn_q".

        Rows of queries and keys are in the order in which the halves of a head are rotated against each other.
        """
        prefix = f"blk.{self.arch.num_layers - 1}."
        names = [name for name in self._file.tensors if name.startswith(prefix) and name.endswith(".weight")]
        layer = {name.removeprefix(prefix).removesuffix(".weight"): self._values(name) for name in names}
        if self.arch.is_interleaved:
            for name in ("attn_q", "attn_k"):
                pairs = layer[name].reshape(-1, self.arch.head_dim // 2, 2, self.arch.hidden)
                layer[name] = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(layer[name].shape)
        return layer

    def _values(self, name: str) -> FloatArray:
        tensor = self._file.tensor(name)
        return quants.dequantize(tensor.type, tensor.data).reshape(tensor.shape)
