"""A bundle: one folder that carries all that a trained model needs, with a checksum of every file.

weights.safetensors      each parameter once; tied ones are tied again by building the model
config.json              format version, resolved settings of the model, vocabulary sizes
source.tokenizer.json    and target.tokenizer.json, or one shared.tokenizer.json
card.json                data, sizes, metrics, commands, versions: what people want to know
manifest.json            size and sha256 of the others

Loading runs no code from the folder: it reads JSON and safetensors, and nothing is unpickled.
"""

from regard.bundle.bundle import Bundle, check_place, found, load, save
from regard.bundle.manifest import MANIFEST, BundleError

__all__ = ["MANIFEST", "Bundle", "BundleError", "check_place", "found", "load", "save"]
