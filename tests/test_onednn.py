"""The oneDNN bypass: on ARM only, inside the block only, with the same numbers."""

import threading
from contextlib import suppress

import pytest
import torch

from regard import device
from regard.device import bypass_onednn


@pytest.mark.parametrize("arm", [True, False])
def test_onednn_is_disabled_inside_on_arm(arm, monkeypatch):
    monkeypatch.setattr(device, "ARM", arm)
    before = torch.backends.mkldnn.enabled
    with bypass_onednn():
        with bypass_onednn():
            assert torch.backends.mkldnn.enabled == (before and not arm)
        assert torch.backends.mkldnn.enabled == (before and not arm)
    assert torch.backends.mkldnn.enabled == before


def test_onednn_is_restored_after_an_error(monkeypatch):
    monkeypatch.setattr(device, "ARM", True)
    before, fault = torch.backends.mkldnn.enabled, KeyError()
    with suppress(KeyError), bypass_onednn():
        raise fault
    assert torch.backends.mkldnn.enabled == before


def test_products_do_not_change():
    x, weight = torch.randn(13, 7), torch.randn(5, 7)
    with bypass_onednn():
        ours = x @ weight.T
    torch.testing.assert_close(ours, x @ weight.T)


def test_overlapping_threads_restore_the_flag():
    switch = torch.backends.mkldnn
    before, inside, leave = switch.enabled, threading.Event(), threading.Event()

    def other():
        with bypass_onednn():
            inside.set()
            leave.wait(100)

    thread = threading.Thread(target=other)
    with bypass_onednn():
        thread.start()
        inside.wait(100)
        during = switch.enabled
    assert switch.enabled == during  # the other thread is still inside
    leave.set()
    thread.join()
    assert switch.enabled == before
