"""What holds for every test: seeds, threads, and how kernels run on a CPU."""

import os

import pytest
import torch
from torch.nn.attention import flex_attention

SLOW = {
    "training",
    "commands",
    "browser",
    "learning",
    "examples",
    "explore",
}  # they wait for programs of their own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first: the last one to run has all other cores waiting."""
    items.sort(key=lambda item: SLOW.isdisjoint(item.path.parts))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _threads():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _interpret_flex():
    """On a CPU, run FlexAttention as plain torch: tracing each of its calls anew would take
    seconds.
    """
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = not torch.cuda.is_available()


@pytest.fixture(autouse=True)
def _fence():
    """Kernels that Triton's interpreter runs may not touch memory outside their own tensors."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    from tests.fence import fenced

    with fenced():
        yield
