"""The section [model] says what `LLM` takes, and has its defaults."""

import inspect

import pytest

from foredraft.engine.config import ModelConfig
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError


def test_arguments_and_defaults_are_those_of_llm():
    parameters = inspect.signature(LLM.__init__).parameters
    assert {name: parameters[name].default for name in ModelConfig().arguments} == ModelConfig().arguments


def test_memory_is_given_in_mib():
    assert ModelConfig(kv_memory_mib=3).arguments["kv_memory"] == 3 * 2**20


def test_a_model_loads_by_it(smollm2):
    config = ModelConfig(target=str(smollm2), context_length=64, max_sequences=1)
    with LLM(config.target, config.draft, **config.arguments) as llm:
        assert llm.context_length == 64


def test_values_are_checked():
    with pytest.raises(ConfigError, match="max_sequences is 0; allowed is a whole number, 1 to 1024"):
        ModelConfig(max_sequences=0)
