"""The training film of a served model: its facts, its snapshots as models, and reduced frames."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.bundle.film_files import FilmError, find_film, list_snapshots
from regard.errors import RegardError
from regard.explore.messages import TraceRequest, not_found
from regard.explore.model_store import ServedModel
from regard.web.access import HttpError

if TYPE_CHECKING:
    from regard.bundle.film_files import Snapshot
    from regard.pipeline import Pipeline
    from regard.trace import Trace

KEPT = 4  # snapshots whose models stay in memory for the next trace
PROBES = 4  # texts on which markers are looked for


class SnapshotModel(ServedModel):
    """A served model with the weights of a snapshot. Computations share the queue of the model."""

    def __init__(self, model: ServedModel, snapshot: Snapshot) -> None:
        own = {name: value for name, value in vars(model).items() if name != "pipeline"}
        vars(self).update(own)
        self.model, self.snapshot = model, snapshot

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline of the snapshot. Use it inside `exclusive`."""
        from regard.trace.film_probes import with_snapshot

        return with_snapshot(self.model.pipeline, self.snapshot)

    @contextmanager
    def exclusive(self) -> Iterator[Pipeline]:
        """The pipeline of the snapshot for one computation at a time."""
        with self.model.exclusive():
            yield self.pipeline


class Film(ABC):
    """The film of a model: what the page's slider needs."""

    kind: str

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Steps, losses and probes as JSON. The finished model is not one of the steps."""

    @abstractmethod
    def markers(self) -> list[dict[str, Any]]:
        """The events that the code finds in the film."""


class SnapshotFilm(Film):
    """A film with weights: every text can be traced at every snapshot."""

    kind = "snapshots"

    def __init__(self, model: ServedModel, folder: Path) -> None:
        self.model = model
        self.snapshots = {one.step: one for one in list_snapshots(folder)}
        self._models: OrderedDict[int, SnapshotModel] = OrderedDict()
        self._lock = threading.Lock()
        self._markers: list[dict[str, Any]] | None = None
        self._marking = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """Steps and losses; any text is a probe."""
        losses = [one.loss for one in self.snapshots.values()]
        return {"kind": self.kind, "steps": list(self.snapshots), "losses": losses, "probes": []}

    def model_at(self, step: int) -> SnapshotModel:
        """The model after a step."""
        with self._lock:
            if step not in self._models:
                if step not in self.snapshots:
                    nearest = min(self.snapshots, key=lambda one: abs(one - step))
                    message = f"the film has no snapshot of step {step:,}; try {nearest:,}"
                    raise not_found("no-snapshot", message)
                self._models[step] = SnapshotModel(self.model, self.snapshots[step])
            self._models.move_to_end(step)
            while len(self._models) > KEPT:
                self._models.popitem(last=False)
            return self._models[step]

    def markers(self) -> list[dict[str, Any]]:
        """The events on the model's examples; computed once."""
        from regard.trace import film_probes

        with self._marking:
            if self._markers is None:
                with self.model.exclusive() as shared:  # others add and remove hooks in their turn
                    pipeline = film_probes.copied(shared)
                texts = film_probes.example_texts(pipeline.bundle.card)[:PROBES]
                if not texts:
                    self._markers = []
                    return self._markers
                film = film_probes.film_of_probes(pipeline, list(self.snapshots.values()), texts)
                self._markers = [
                    {**one, "probe": texts[one["probe"]]} if "probe" in one else one
                    for one in film_probes.markers(film)
                ]
            return self._markers


class ReducedFilm(Film):
    """A film without weights: attention and output of a few probes."""

    kind = "probes"

    def __init__(self, model: ServedModel, path: Path) -> None:
        from regard.trace.film_storage import load_film, weights_sha256

        self.film, self._found = load_film(path, weights_sha256(model.folder))

    def describe(self) -> dict[str, Any]:
        """Steps, losses and probes."""
        pairs = zip(self.film.steps, self.film.losses, strict=True)
        known = [(step, loss) for step, loss in pairs if step is not None]
        probes = [{"source": one.source, "target": one.target} for one in self.film.probes]
        steps, losses = ([one[i] for one in known] for i in (0, 1))
        return {"kind": self.kind, "steps": steps, "losses": losses, "probes": probes}

    def markers(self) -> list[dict[str, Any]]:
        """The events that were found when the film was reduced."""
        probes = self.film.probes
        return [
            {**one, "probe": probes[one["probe"]].source} if "probe" in one else one
            for one in self._found
        ]

    def trace(self, request: TraceRequest, finished: Trace) -> Trace:
        """One frame as a trace of given numbers, with the tokens of the finished model's trace."""
        from regard.trace import Trace

        texts = [one.source for one in self.film.probes]
        source = request.source.strip()
        if source not in texts or request.checkpoint not in self.film.steps or request.edits:
            message = "this film was reduced to some texts; choose one of them, without edits"
            raise HttpError(422, "not-in-film", message)
        arrays = self.film.frame(texts.index(source), request.checkpoint)
        try:
            made = Trace.from_arrays(
                finished.source, finished.target, arrays, following=finished.following
            )
        except RegardError as error:
            message = f"the film has other tokens for this text: {error}"
            raise HttpError(422, "not-in-film", message) from None
        answer = replace(
            finished.answer, logps=arrays["out.chosen"].tolist(), score=float(arrays["out.score"])
        )
        return replace(made, answer=answer, template=finished.template)


def open_film(model: ServedModel) -> SnapshotFilm | ReducedFilm:
    """The film of a model; raises if it has none or if it is damaged."""
    path = find_film(model.folder)
    if path is None:
        raise not_found("no-film", f"{model.name} has no training film; train with train.film=40")
    try:
        return SnapshotFilm(model, path) if path.is_dir() else ReducedFilm(model, path)
    except FilmError as error:
        raise HttpError(422, "film-damaged", str(error)) from None
