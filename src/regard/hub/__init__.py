"""Export of models to other runtimes, each verified against the original before it is written."""

from regard.hub.ctranslate2_export import cannot_export, write_ctranslate2
from regard.hub.ctranslate2_model import CTranslate2Model
from regard.hub.onnx_export import write_onnx
from regard.hub.onnx_model import OnnxModel
from regard.hub.verification import ExportError, Verification, verify, verify_logits

__all__ = [
    "CTranslate2Model",
    "ExportError",
    "OnnxModel",
    "Verification",
    "cannot_export",
    "verify",
    "verify_logits",
    "write_ctranslate2",
    "write_onnx",
]
