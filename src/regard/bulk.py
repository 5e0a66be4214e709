"""Prediction of large inputs on Ray Data: a pool of single-threaded workers, one part at a time.

>>> regard.bulk.predict("lines.txt.gz", "runs/demo/bundle", "answers.txt")
>>> dataset.map_batches(regard.bulk.Predictor, fn_constructor_kwargs={"bundle": "spelling"})

`predict` splits its input into the shards of `regard predict --shard`, answers them with
`map_batches` and joins them: the output equals that of one `regard predict`, and a run that was
stopped resumes with the same call. All workers must see the same files. `Predictor` answers the
batches of any other dataset.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.commands.join import join
from regard.commands.options import OutputFormat
from regard.commands.shards import MOST_SHARDS, Shard, find_count
from regard.decoding_options import DecodingOptions
from regard.errors import RegardError
from regard.model_location import find_model
from regard.pipeline import Pipeline

PART_BYTES = 1 << 22  # of the stored input, in a part by default
PARTS_PER_WORKER = 4  # at least, so that no worker waits long for the last one
# Ray replaces 127.0.0.1 by an address that others can reach; Linux has more loopback addresses.
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
# No usage statistics; workers with the priority of other commands, not with that of idle ones.
LOCAL_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class BulkJob:
    """What the workers need to know: the arguments of `predict`, as plain values."""

    bundle: str
    files: tuple[str, ...]
    out: str
    parts: int
    column: str | int | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    form: OutputFormat = field(default_factory=OutputFormat)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    settings: Mapping[str, Any] = field(default_factory=dict)  # engine, device, precision, long
    restart: bool = False


def predict(
    paths: Paths,
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    parts: int | None = None,
    workers: int | None = None,
    column: str | int | None = None,
    reading: Mapping[str, Any] | None = None,
    scores: bool = False,
    alignments: bool = False,
    json: bool = False,
    engine: str = "auto",
    device: str = "cpu",
    precision: str | None = None,
    long: str = "warn",
    restart: bool = False,
    **decoding: Any,
) -> Path:
    """Answer every line or row of some files on Ray and write `out` in their order.

    The files may be text, plain or compressed, tables, Parquet or Arrow; `column` and `reading`
    (header, encoding, sheet) are those of `regard predict`, and so are the other options.
    `parts` is the number of parts that can be finished separately, `workers` that of processes
    (default: the CPUs of the cluster). Uses the Ray that is initialised or that RAY_ADDRESS
    names, or else starts one on this machine until the end.
    """
    ray = import_ray()
    options = DecodingOptions.of(**decoding)
    options.check()
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    names = tuple(str(Path(path).resolve()) for path in files)
    target = Path(out).absolute()
    with _running(ray):
        processes = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        job = BulkJob(
            bundle=str(find_model(bundle).resolve()),
            files=names,
            out=str(target),
            parts=_choose_parts(target, names, processes) if parts is None else parts,
            column=column,
            reading=dict(reading or {}),
            form=OutputFormat(scores=scores, alignments=alignments, json=json),
            decoding=options,
            settings={"engine": engine, "device": device, "precision": precision, "long": long},
            restart=restart,
        )
        Shard.parse(f"1/{job.parts}")  # raises if the number of parts is out of range
        _answer_parts(ray, job, min(processes, job.parts))
    shards = [Shard(number, job.parts).path(target) for number in range(1, job.parts + 1)]
    join(target, shards, remove=True)
    return Path(out)


def _answer_parts(ray: Any, job: BulkJob, workers: int) -> None:
    """Answer all parts on a pool of workers; raises the first error."""
    data = importlib.import_module("ray.data")
    numbers = data.from_items(list(range(1, job.parts + 1)), override_num_blocks=job.parts)
    results = numbers.map_batches(
        PartPredictor,
        fn_constructor_args=[job],
        batch_size=1,
        num_cpus=1,
        compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=2),
    )
    for row in results.iter_rows():
        if row["error"]:
            raise RegardError(f"part {row['part']}/{job.parts}: {row['error']}")


class PartPredictor:
    """A worker: one thread, one model in memory. Answers the parts whose numbers it is given."""

    def __init__(self, job: BulkJob) -> None:
        self._job = job
        self._pipeline: Pipeline | None = None
        use_one_thread()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Answer some parts; an error is returned as text, for one line on the driver."""
        results: dict[str, list[Any]] = {"part": [], "error": []}
        for number in batch["item"]:
            results["part"].append(int(number))
            try:
                self.answer(Shard(int(number), self._job.parts))
                results["error"].append("")
            except RegardError as error:
                results["error"].append(str(error))
        return results

    def answer(self, shard: Shard) -> None:
        """Answer one part, or what an earlier run left of it."""
        from regard.commands.inputs import open_inputs
        from regard.commands.predict import PredictJob, load_for, predict

        job = self._job
        one = PredictJob(
            bundles=[Path(job.bundle)],
            inputs=open_inputs((), job.files, job.column, shard, **job.reading),
            output=Path(job.out),
            form=job.form,
            decoding=job.decoding,
            restart=job.restart,
            shard=shard,
            **job.settings,
        )
        self._pipeline = self._pipeline or load_for(one)
        predict(one, self._pipeline)


class Predictor:
    """Answers the batches of a Ray dataset: for `map_batches`, with a pool of actors.

    Adds the columns `output` and `score` for the texts in `column`. Other keyword arguments are
    decoding options.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        column: str = "text",
        output: str = "output",
        engine: str = "auto",
        device: str = "cpu",
        precision: str | None = None,
        long: str = "warn",
        **decoding: Any,
    ) -> None:
        from regard.loading import load

        use_one_thread()
        self._options = DecodingOptions.of(**decoding)
        self._column, self._output = column, output
        settings: dict[str, Any] = {"engine": engine, "device": device, "precision": precision}
        self._pipeline = load(bundle, long=long, **settings)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with two more columns."""
        import numpy as np

        if self._column not in batch:
            known = ", ".join(map(repr, batch))
            raise RegardError(f"the dataset has no column {self._column!r}; it has {known}")
        texts = ["" if text is None else str(text) for text in batch[self._column]]
        best = [found[0] for found in self._pipeline.answers(texts, self._options)]
        outputs = np.array([answer.text for answer in best], dtype=object)
        scores = np.array([answer.score for answer in best])
        return {**batch, self._output: outputs, "score": scores}


def use_one_thread() -> None:
    """Let this process compute on one thread: a pool has one process for each core."""
    os.environ["OMP_NUM_THREADS"] = "1"


def import_ray() -> Any:
    """The Ray library; raises one line if it is not installed."""
    try:
        importlib.import_module("ray.data")
        return importlib.import_module("ray")
    except ImportError:
        raise RegardError("regard.bulk needs the extra 'ray': pip install 'regard[ray]'") from None


@contextmanager
def _running(ray: Any) -> Iterator[None]:
    """Inside, Ray runs: the caller's, the cluster of RAY_ADDRESS, or one on this machine that
    other machines cannot reach (on Linux)."""
    if ray.is_initialized():
        yield
        return
    if os.environ.get("RAY_ADDRESS"):
        ray.init()
    else:
        for name, value in LOCAL_RAY.items():
            os.environ.setdefault(name, value)
        ray.init(address="local", include_dashboard=False, _node_ip_address=LOOPBACK)
    try:
        yield
    finally:
        ray.shutdown()


def _choose_parts(out: Path, files: Sequence[str], workers: int) -> int:
    """The parts of an earlier run of this output, or enough for the size and the workers."""
    if (before := find_count(out)) is not None:
        return before
    size = sum(Path(name).stat().st_size for name in files if Path(name).is_file())
    return min(MOST_SHARDS, max(PARTS_PER_WORKER * workers, -(-size // PART_BYTES)))
