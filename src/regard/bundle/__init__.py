"""A bundle: one folder with everything a trained model needs, and a checksum of every file.

weights.safetensors      each parameter once; building the model ties shared ones again. With
                         "precision": "int8" in the card, int8 matrices and their scales
config.json              format version, resolved model settings, vocabulary sizes
source.tokenizer.json    and target.tokenizer.json, or one shared.tokenizer.json
card.json                model card: data, sizes, metrics, commands, versions
README.md                the model card in prose
training_sources.safetensors  hashes of the training sources (optional)
manifest.json            size and sha256 of the other files

Loading runs no code from the folder: it reads JSON and safetensors, and unpickles nothing.
"""

from regard.bundle.archive import pack
from regard.bundle.bundle import Bundle, load, save
from regard.bundle.contents import BundleContents, check_destination, locate, read_contents
from regard.bundle.manifest import MANIFEST, BundleError
from regard.bundle.training_sources import SourceCollector, TrainingSources

__all__ = [
    "MANIFEST",
    "Bundle",
    "BundleContents",
    "BundleError",
    "SourceCollector",
    "TrainingSources",
    "check_destination",
    "load",
    "locate",
    "pack",
    "read_contents",
    "save",
]
