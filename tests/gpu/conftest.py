"""Warnings of torch that GPU tests ignore."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torch 2.11 warns while it compiles FlexAttention; the warning is not ours."""
    for item in items:
        if "gpu" in item.path.parts:
            mark = "ignore:The .grad attribute of a Tensor that is not a leaf"
            item.add_marker(pytest.mark.filterwarnings(mark))
