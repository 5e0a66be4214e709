"""Export of models to other runtimes, each verified against the original before it is written."""

from regard.hub.ctranslate2_export import cannot_export, write_ctranslate2
from regard.hub.ctranslate2_model import CTranslate2Model
from regard.hub.verification import ExportError, Verification, verify

__all__ = [
    "CTranslate2Model",
    "ExportError",
    "Verification",
    "cannot_export",
    "verify",
    "write_ctranslate2",
]
