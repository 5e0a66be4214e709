"""A bundle: one folder with everything a trained model needs, and a checksum of every file.

weights.safetensors      each parameter once; building the model ties shared ones again. With
                         "precision": "int8" in the card, int8 matrices and their scales
config.json              format version, resolved model settings, vocabulary sizes, template
source.tokenizer.json    and target.tokenizer.json, or one shared.tokenizer.json
card.json                model card: data, sizes, metrics, commands, versions
README.md                the model card in prose
training_sources.safetensors  hashes of the training sources (optional)
manifest.json            size and sha256 of the other files

Loading runs no code from the folder: it reads JSON and safetensors, and unpickles nothing.
"""

from typing import TYPE_CHECKING

from regard.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.bundle.archive import pack
    from regard.bundle.bundle import Bundle, read
    from regard.bundle.location import check_destination, locate
    from regard.bundle.manifest import MANIFEST, BundleError
    from regard.bundle.model_files import load, save
    from regard.bundle.training_sources import SourceCollector, TrainingSources

__all__ = [
    "MANIFEST",
    "Bundle",
    "BundleError",
    "SourceCollector",
    "TrainingSources",
    "check_destination",
    "load",
    "locate",
    "pack",
    "read",
    "save",
]

_HOMES = {
    "archive": ("pack",),
    "bundle": ("Bundle", "read"),
    "location": ("check_destination", "locate"),
    "manifest": ("MANIFEST", "BundleError"),
    "model_files": ("load", "save"),
    "training_sources": ("SourceCollector", "TrainingSources"),
}
__getattr__ = lazy_names(__name__, _HOMES)
