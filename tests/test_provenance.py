import hashlib
import json

import foredraft
from foredraft.provenance import HASHED_BYTES, provenance


def test_provenance(tmp_path):
    path = tmp_path / "model.gguf"
    data = bytes(range(256)) * (HASHED_BYTES // 256 + 3)
    path.write_bytes(data)
    record = json.loads(json.dumps(provenance({"model": path}, {"rounds": 3})))
    assert record["models"]["model"] == {
        "file": "model.gguf",
        "size": len(data),
        "sha256_of_first_mib": hashlib.sha256(data[:HASHED_BYTES]).hexdigest(),
    }
    assert record["options"] == {"rounds": 3}
    assert record["foredraft"] == foredraft.__version__
    assert record["cores"] >= 1
    assert record["cpu"]
