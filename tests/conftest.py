"""Model files for tests: pulled when they are missing, so that a test that needs one never passes by not running."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from foredraft.governor import profile_cache
from foredraft.models.pull import pull

# A machine that has other things to do fails no test.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _profiles_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests measure of their small models is not kept beside the user's."""
    profile_cache.FOLDER = tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, small enough for every run."""
    return pull("smollm2-135m")


@pytest.fixture(scope="session")
def qwen_small() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct; for tests marked `models`."""
    return pull("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def qwen() -> Path:
    """Qwen2.5-Coder-1.5B-Instruct; for tests marked `models`."""
    return pull("qwen2.5-coder-1.5b")


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma 3 270M, a base model without a chat template; for tests marked `models`."""
    return pull("gemma3-270m")
