"""What loading takes of memory: little more than the packed weights, though the whole file is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft import ops
from foredraft.models import gguf
from foredraft.ops.base import TensorType

STATUS = Path("/proc/self/status")
GROWTH = """
import sys
from pathlib import Path
from foredraft import ops
from foredraft.models import gguf
from foredraft.models.decoder import Decoder

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def load(path):
    return Decoder(gguf.read(path), ops.create("native", 2))

load(sys.argv[1])  # what a model costs whatever its size
before = peak()
model = load(sys.argv[2])
print(peak() - before)
"""


@pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(), reason="the system does not tell a process's peak memory"
)
@pytest.mark.parametrize("shape", [{"num_layers": 6}, {"num_layers": 1, "tied": True, "vocab_size": 40_000}])
def test_peak_is_little_more_than_the_file(tmp_path, shape):
    small = tiny.write_tiny(tmp_path / "small.gguf")
    large = tiny.write_tiny(tmp_path / "large.gguf", matrix_type=TensorType.F16, hidden=512, ffn=3072, **shape)
    size = large.stat().st_size
    assert size > 45e6
    command = [sys.executable, "-c", GROWTH, str(small), str(large)]
    growth = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert size * 0.9 < growth < size * 1.3


def test_tensors_can_be_read_after_they_were_packed(tmp_path):
    file = gguf.read(tiny.write_tiny(tmp_path / "tiny.gguf", hidden=256, ffn=4096))
    native = ops.create("native")
    for tensor in file.tensors.values():
        before = tensor.data.copy()
        if len(tensor.shape) == 2:
            native.matrix(tensor)
        assert tensor.is_mapped
        assert np.array_equal(tensor.data, before)
