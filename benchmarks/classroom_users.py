"""Simulated users of the explorer: they request what the page requests, with pauses between.

A busy server (429) is asked again after the page's own delays. Every other response than 200 or
304, and a fourth 429, is an error.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

RETRY_DELAYS = (0.4, 1.2, 3.0)  # those of server-source.ts
TIMEOUT = 120.0
FRAMES = 12  # of a film: as many as one movement of the slider shows


@dataclass
class Tally:
    """What the users saw."""

    times: dict[str, list[float]] = field(default_factory=dict)  # seconds by kind of request
    errors: list[str] = field(default_factory=list)
    retries: int = 0

    def percentile(self, kind: str, share: float) -> float:
        """The seconds within which this share of the requests of a kind was answered."""
        ordered = sorted(self.times.get(kind, [])) or [float("nan")]
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def requests(self) -> int:
        """The number of all answered requests."""
        return sum(map(len, self.times.values()))


class Client:
    """A browser's connection: keep-alive, with the cookie that the token was exchanged for."""

    def __init__(self, port: int, token: str, tally: Tally) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.tally, self.cookie = tally, ""
        response = self._send("GET", f"/?token={token}", None)
        response.read()
        self.cookie = (response.getheader("set-cookie") or "").partition(";")[0]
        if response.status != 303 or not self.cookie:
            tally.errors.append(f"the token got {response.status} and no cookie")

    def _send(self, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        headers = {"accept-encoding": "gzip", "cookie": self.cookie}
        data = None
        if body is not None:
            data, headers["content-type"] = json.dumps(body).encode(), "application/json"
        try:
            self.connection.request(method, path, data, headers)
            return self.connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.connection.close()  # an idle connection was closed; browsers open another one
            self.connection.request(method, path, data, headers)
            return self.connection.getresponse()

    def fetch(self, kind: str, path: str, body: Any = None) -> bytes:
        """The response; its time counts from the first attempt to the last byte."""
        start = time.perf_counter()
        status, content = 0, b""
        for delay in (*RETRY_DELAYS, None):
            response = self._send("POST" if body is not None else "GET", path, body)
            content, status = response.read(), response.status
            if status != 429 or delay is None:
                break
            self.tally.retries += 1
            time.sleep(delay)
        self.tally.times.setdefault(kind, []).append(time.perf_counter() - start)
        if status not in (200, 304):
            self.tally.errors.append(f"{kind} {path[:90]}: {status} {content[:200]!r}")
            raise ConnectionError(kind)
        return content

    def json(self, kind: str, path: str, body: Any = None) -> Any:
        """The response as JSON."""
        return json.loads(self.fetch(kind, path, body))


class User:
    """A student: opens the page, then does something new every few seconds."""

    def __init__(self, client: Client, seed: int, think: float) -> None:
        self.client, self.think = client, think
        self.draw = random.Random(seed)
        for name in ("", "explorer.js", "explorer.css", "icon.svg"):
            client.fetch("page", f"/{name}")
        self.models = client.json("models", "/api/models")["models"]
        self.open_model(self.draw.choice(self.models))

    def open_model(self, model: dict[str, Any]) -> None:
        """Choose a model, which opens on its example."""
        self.model = model
        self.client.json("graph", f"/api/models/{quote(model['id'])}/graph")
        self.edits: list[dict[str, Any]] = []
        self.source = model["example"]
        self.run()

    def run(self, **more: Any) -> None:
        """Trace the text and load the tensors of one attention, as the page does."""
        body = {"model": self.model["id"], "source": self.source, "target": None}
        self.trace = self.client.json("trace", "/api/trace", {**body, "edits": self.edits, **more})
        names = [one["name"] for one in self.trace["tensors"]]
        chosen = self.draw.choice(self.trace["attentions"])
        self.names = [name for name in names if name.startswith(chosen["name"] + ".")]
        self.attention = chosen
        self.client.fetch("tensors", self.path("tensors", name=self.names))

    def path(self, view: str, **values: Any) -> str:
        """The address of a view of the trace."""
        query = urlencode(values, doseq=True)
        return f"/api/trace/{self.trace['id']}/{view}" + (f"?{query}" if query else "")

    # What a student does.

    def enter_text(self) -> None:
        """A text that nobody entered before."""
        texts = self.model["examples"]
        words = [word for text in texts for word in text.split()]
        if any(" " in text for text in texts):
            self.source = " ".join(self.draw.choices(words, k=self.draw.randint(3, 9)))
        else:
            letters = [letter for word in words for letter in word]
            self.source = "".join(self.draw.choices(letters, k=self.draw.randint(4, 14)))
        self.edits = []
        self.run()

    def click_numbers(self) -> None:
        """Three numbers and their arithmetic."""
        shapes = {one["name"]: one["shape"] for one in self.trace["tensors"]}
        for _ in range(3):
            name = self.draw.choice(self.names)
            index = ",".join(str(self.draw.randrange(size)) for size in shapes[name])
            self.client.json("explain", self.path("explain", tensor=name, index=index))

    def edit(self) -> None:
        """One head removed, and restored."""
        head = self.draw.randrange(self.attention["heads"])
        ablate = {"kind": "ablate", "attention": self.attention["name"], "head": head}
        self.edits = [{**ablate, "by": "zero"}]
        self.run()
        self.edits = []
        self.run()

    def ablate_heads(self) -> None:
        """The effect of every head."""
        body = {"model": self.model["id"], "source": self.source, "target": None}
        self.client.json("head-ablation", "/api/head-ablation", body)

    def look_at_pages(self) -> None:
        """Views of the other pages."""
        row = self.draw.randrange(len(self.trace["tokens"]["target"]))
        for view, values in (
            ("heads", {}),
            ("alignment", {"attention": "mean"}),
            ("output", {"row": row, "n": 20}),
            ("beam-tree", {"beam": 4}),
            ("residual-stream", {"side": "target", "position": row}),
            ("occlusion", {}),
        ):
            if view == "residual-stream" and self.model["family"] == "recurrent":
                continue
            self.client.json(view, self.path(view, **values))

    def move_film(self) -> None:
        """Some frames of the training film on the model's example."""
        id = quote(self.model["id"])
        film = self.client.json("film", f"/api/models/{id}/film")
        probe = film["probes"][0] if film["probes"] else {"source": self.model["example"]}
        self.source, self.edits = probe["source"], []
        self.run()
        target = self.trace["output"]["text"]
        start = self.draw.randrange(max(1, len(film["steps"]) - FRAMES))
        for step in film["steps"][start : start + FRAMES]:
            body = {"model": self.model["id"], "source": self.source, "target": target}
            frame = {**body, "edits": [], "checkpoint": step}
            self.trace = self.client.json("frame", "/api/trace", frame)
            weights = [n for n in self.names if n.endswith(".weights")]
            self.client.fetch("tensors", self.path("tensors", name=weights))
        self.client.json("markers", f"/api/models/{id}/film/markers")
        self.run()

    def do_lesson(self) -> None:
        """The requests of lessons 6, 8 and 9, and of the appendix."""
        for name in ("lessons.js", "lessons.css"):
            self.client.fetch("page", f"/{name}")
        self.open_model(self.draw.choice(self.models))
        size = len(self.trace["tokens"][self.attention["key"]])
        row = [float(k == 0) for k in range(size)]
        place = {"attention": self.attention["name"], "head": 0, "query": 0}
        if self.attention["kind"] != "decoder":
            self.edits = [{"kind": "row", **place, "weights": row}]
            self.run()
        self.edits = []
        for beam in (1, 2, 8):
            self.run(decoding={"beam": beam})

    def actions(self) -> Sequence[tuple[float, Callable[[], None]]]:
        """What a student does, and how often."""
        film = [(1.0, self.move_film)] if self.model["film"] else []
        return [
            (5.0, self.enter_text),
            (4.0, self.click_numbers),
            (2.0, self.edit),
            (0.5, self.ablate_heads),
            (1.5, self.look_at_pages),
            (1.0, self.do_lesson),
            *film,
        ]

    def study(self, until: float) -> None:
        """Act until the lesson ends; an error ends the action only."""
        while time.monotonic() < until:
            weights, actions = zip(*self.actions(), strict=True)
            with contextlib.suppress(ConnectionError):  # counted
                self.draw.choices(actions, weights)[0]()
            time.sleep(self.draw.uniform(0.5, 1.5) * self.think)
