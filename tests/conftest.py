"""Shared by all tests: double precision, a compilation cache, types checked at run time, and one small run."""

import os
import tempfile
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "bayes_attn_test_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Most of a cold run is compilation; this halves it, and the compiled code is as fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

# The workers fill the cores; with threads of its own in each, the linear algebra of many small matrices takes twice as
# long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from jaxtyping import install_import_hook

install_import_hook("bayes_attn", "typecheck.check")

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from bayes_attn import CopyTask, Population, theory


@pytest.fixture(scope="module", autouse=True)
def compiled_code_is_dropped() -> Iterator[None]:
    """After each file: the kernel limits the memory maps of one process, of which each compiled function takes some."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def softmax_16() -> Population:
    return Population(CopyTask(16, 16))


@pytest.fixture(scope="session")
def linear_16() -> Population:
    return Population(CopyTask(16, 16), attention="linear")


@pytest.fixture(scope="session")
def transition_16(softmax_16: Population) -> theory.Transition:
    return theory.transition(softmax_16)


@pytest.fixture
def random_numbers() -> np.random.Generator:
    return np.random.default_rng(20260)


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(7)
