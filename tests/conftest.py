"""Fixtures of every test: seeds, threads, and how kernels run on a CPU."""

import os

import pytest
import torch
from torch.nn.attention import flex_attention

# folders whose tests start processes and wait for them
SLOW = {"training", "commands", "browser", "learning", "examples", "explore", "serve"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first, so that no core waits for the last of them."""
    items.sort(key=lambda item: SLOW.isdisjoint(item.path.parts))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _threads():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _interpret_flex():
    """Run FlexAttention as plain torch on a CPU; compiling each call would take seconds."""
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = not torch.cuda.is_available()


@pytest.fixture(autouse=True)
def _check_bounds():
    """Kernels in Triton's interpreter may not touch memory outside their own tensors."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    from tests.bounds_checker import check_bounds

    with check_bounds():
        yield
