"""A script for the tests: predictions on a real local Ray, started and stopped here.

python ray_script.py FOLDER BUNDLE    prints what happened as one JSON object
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet
import ray
import ray.data

import regard
from regard.bulk import LOOPBACK, Predictor


def main(home: Path, bundle: str) -> None:
    """Run each kind of prediction once."""
    store = 100 * 2**20
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=store,
        _node_ip_address=LOOPBACK,
    )
    facts = {"address": ray.nodes()[0]["NodeManagerAddress"]}
    regard.bulk.predict(home / "lines.txt.gz", bundle, home / "out.txt", workers=2, n_best=2)
    regard.bulk.predict(
        [home / "rows.parquet"], bundle, home / "out.parquet", column="source", parts=2, workers=1
    )
    words = pyarrow.parquet.read_table(home / "rows.parquet")["source"].to_pylist()
    dataset = ray.data.from_items([{"text": word} for word in words], override_num_blocks=1)
    found = dataset.map_batches(
        Predictor, fn_constructor_kwargs={"bundle": bundle, "beam": 1}, concurrency=1, num_cpus=1
    )
    facts["rows"] = [[row["text"], row["output"], row["score"]] for row in found.take_all()]
    ray.shutdown()
    print(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
