"""The OpenAPI document, and requests made up from it: whatever comes, the server does not fail."""

from copy import deepcopy

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from serving import Served

NUM_EXAMPLES = 15
WAYS = [
    "GET /health",
    "GET /version",
    "GET /metrics",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "POST /tokenize",
    "POST /detokenize",
    "POST /v1/completions",
    "POST /v1/chat/completions",
]


@pytest.fixture(scope="module")
def document(served: Served):
    return served.http.get("/openapi.json").json()


@pytest.fixture(scope="module")
def schema(served: Served, document):
    document = deepcopy(document)
    for name in ("ChatRequest", "CompletionRequest"):
        fields = document["components"]["schemas"][name]["properties"]
        for field in {"max_tokens", "max_completion_tokens"} & fields.keys():
            fields[field] = {"type": "integer", "maximum": 3}
    config = schemathesis.Config.from_dict({"base-url": served.url})
    return schemathesis.openapi.from_dict(document, config=config)


def test_document_names_every_way(document):
    assert {f"{method.upper()} {path}" for path, ways in document["paths"].items() for method in ways} == set(WAYS)
    for path in document["paths"].values():
        for operation in path.values():
            assert {"200", "4XX", "5XX"} <= operation["responses"].keys()
            assert "422" not in operation["responses"]


@pytest.mark.parametrize(
    ("way", "mode"),
    [(way, mode) for way in WAYS for mode in GenerationMode if way.startswith("POST") or mode.is_positive],
)
def test_nothing_makes_the_server_fail(schema, way, mode):
    method, path = way.split()

    @settings(max_examples=NUM_EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call()
        assert response.status_code < 500, response.text
        statuses.add(response.status_code)

    statuses: set[int] = set()
    check()
    assert statuses
