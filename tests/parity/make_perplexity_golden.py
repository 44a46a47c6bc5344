"""Writes ../data/parity_perplexity.json: llama.cpp's perplexities of ../data/text.txt.

    python tests/parity/make_perplexity_golden.py LLAMA_FOLDER RELEASE MODEL.gguf ...

LLAMA_FOLDER holds llama-perplexity and llama-quantize; RELEASE names them. Each model is measured as it is (llama.cpp
then quantizes activations, as foredraft's native op set does) and with its weights spelled out as F32 (nothing is
quantized any more: what the reference op set computes). The running figures are kept, one per chunk. Models that are
not given keep theirs, so give all of them after a change of the text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "parity_perplexity.json"
CHUNK_LEN = 256
OPTIONS = ["-c", str(CHUNK_LEN), "-b", str(CHUNK_LEN)]


def perplexities(tools: Path, model: Path) -> list[float]:
    """Perplexity over the first 1, 2, ... chunks."""
    command = [tools / "llama-perplexity", "-m", model, "-f", DATA / "text.txt", *OPTIONS]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(value) for value in re.findall(r"\[\d+\]([\d.]+)", output.stdout + output.stderr)]


def with_float_weights(tools: Path, model: Path) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        spelled_out = Path(folder) / "f32.gguf"
        command = [tools / "llama-quantize", "--allow-requantize", model, spelled_out, "F32"]
        subprocess.run(command, check=True, capture_output=True)
        return perplexities(tools, spelled_out)


def main() -> None:
    tools, release, models = Path(sys.argv[1]), sys.argv[2], [Path(name) for name in sys.argv[3:]]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"models": {}}
    golden |= {"made_by": release, "options": OPTIONS, "chunk_len": CHUNK_LEN}
    for model in models:
        entry = {"quantized": perplexities(tools, model), "float": with_float_weights(tools, model)}
        golden["models"][model.name] = entry
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
        print(model.name, entry, flush=True)


if __name__ == "__main__":
    main()
