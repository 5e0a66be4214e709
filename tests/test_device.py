"""Devices: names, torch devices and errors for devices that are not available."""

import pytest
import torch

import regard
from regard.device import resolve_device
from regard.errors import RegardError


def test_device_can_be_a_torch_device():
    assert regard.load("spelling", device=torch.device("cpu")).device.type == "cpu"
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


def test_unavailable_device_is_named():
    with pytest.raises(RegardError, match=r"^device 'bogus' is not available; use cpu or cuda$"):
        regard.bundle.load(regard.pretrained.resolve_model("spelling"), "bogus")
