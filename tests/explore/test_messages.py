"""Invalid requests get a status and a one-line message; no request crashes the server."""

import json
import math
import random

import pytest

from regard.web.json_messages import to_json
from tests.explore.helpers import error_message

JSON = {"content-type": "application/json"}
BROKEN = (b"{", b"\xff\xfe", b"[" * 50_000, b'{"model": ' + b"9" * 10_000 + b"}")


@pytest.fixture(scope="module")
def body(ids):
    return {"model": ids["transformer"], "source": "aba", "target": "Z"}


@pytest.fixture(scope="module")
def trace(client, body):
    return client.post("/api/trace", json=body).json()


@pytest.mark.parametrize(
    ("change", "status", "code", "message"),
    [
        ({"model": "none@00000000"}, 404, "unknown-model", "unknown model 'none@00000000'; "),
        ({"model": None}, 422, "invalid", "model: input should be a valid string; got None"),
        ({"source": 3}, 422, "invalid", "source: input should be a valid string; got 3"),
        (
            {"source": "a" * 4_001},
            422,
            "too-long",
            "source: string should have at most 4000 characters; got 4,001",
        ),
        (
            {"target": "Z " * 2_001},
            422,
            "too-long",
            "target: string should have at most 4000 characters; got 4,002",
        ),
        (
            {"source": "a" * 513},
            422,
            "too-long",
            "the source has 513 tokens; the explorer shows up to 512: shorten it",
        ),
        (
            {"target": "Z " * 513},
            422,
            "too-long",
            "the target has 513 tokens; the explorer shows up to 512",
        ),
        ({"source": " \n"}, 422, "empty", "the source is empty; enter a text"),
        (
            {"source": "\ud800"},
            422,
            "invalid",
            "source: input should be a valid string, unable to parse",
        ),
        (
            {"decoding": {"beam": 17}},
            422,
            "invalid",
            "decoding.beam: input should be less than or equal to 16; got 17",
        ),
        ({"decoding": {"beam": 0}}, 422, "invalid", "decoding.beam: "),
        ({"decoding": {"beam": "4"}}, 422, "invalid", "decoding.beam: "),
        ({"decoding": {"ban": ["A", 1]}}, 422, "invalid", "decoding.ban.1: "),
        (
            {"target": None, "decoding": {"min_length": -1}},
            422,
            "invalid",
            "min_length must be at least 0",
        ),
        (
            {"target": None, "decoding": {"min_length": 9, "max_length": 3}},
            422,
            "invalid",
            "satisfies all constraints within the length limit",
        ),
        ({"decoding": {"width": 4}}, 422, "invalid", "unknown field decoding.width; remove it"),
        ({"edits": [{}] * 33}, 422, "too-long", "edits: list should have at most 32 items"),
        ({"edits": [{}]}, 422, "invalid", ""),
        ({"edits": [{"kind": "nothing"}]}, 422, "invalid", "nothing"),
        (
            {"edits": [{"kind": "ablate", "attention": "dec.9.cross", "head": 0, "by": "zero"}]},
            422,
            "invalid",
            "",
        ),
        (
            {"edits": [{"kind": "ablate", "attention": "dec.0.cross", "head": 9, "by": "zero"}]},
            422,
            "invalid",
            "",
        ),
        ({"edits": [3]}, 422, "invalid", "edits.0: "),
        ({"more": 1}, 422, "invalid", "unknown field more; remove it"),
        (
            {"\ud800": 1},
            422,
            "invalid",
            "unable to parse raw data as a unicode string; got '\\ud800'",
        ),
    ],
)
def test_invalid_trace_requests(client, body, change, status, code, message):
    content = json.dumps({**body, **change})
    response = client.post("/api/trace", content=content, headers=JSON)
    assert message in error_message(response, status, code)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        *((content, "invalid") for content in (b"", b"[]", b"3", b"null")),
        *((content, "wrong-json") for content in BROKEN),
    ],
)
def test_bodies_that_are_not_requests(client, content, code):
    for path in ("/api/trace", "/api/tokenize", "/api/head-ablation"):
        assert error_message(client.post(path, content=content, headers=JSON), 422, code)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("tensors?name=enc.9.self.weights", 404, "unknown-tensor"),
        ("tensors", 422, "invalid"),
        ("explain?tensor=nothing&index=0", 404, "unknown-tensor"),
        ("explain?index=0", 422, "invalid"),
        ("explain?tensor=enc.0.self.weights&index=0,0,99", 422, "invalid"),
        ("explain?tensor=enc.0.self.weights&index=0,0,-1", 422, "invalid"),
        ("explain?tensor=enc.0.self.weights&index=0,0", 422, "invalid"),
        ("explain?tensor=enc.0.self.weights&index=0,x,1", 422, "invalid"),
        ("explain?tensor=enc.0.self.weights&index=0,,1", 422, "invalid"),
        ("neighbours?side=source&position=99", 422, "out-of-range"),
        ("neighbours?side=source&position=-1", 422, "out-of-range"),
        ("neighbours?side=left&position=0", 422, "invalid"),
        ("neighbours?side=source&position=0&n=0", 422, "invalid"),
        ("embedding-space?side=up", 422, "invalid"),
        ("output?row=99", 422, "out-of-range"),
        ("output?row=a", 422, "invalid"),
        ("output?row=0&word=", 422, "empty"),
        ("alignment?attention=enc.0.self", 404, "unknown-attention"),
        ("alignment?attention=dec.0.cross&head=2", 422, "out-of-range"),
        ("alignment?attention=mean&head=0", 422, "out-of-range"),
        ("residual-stream?side=target&position=99", 422, "out-of-range"),
        ("export?format=docx", 422, "invalid"),
        ("export?format=csv", 422, "invalid"),
        ("export?format=npz&name=nothing", 404, "unknown-tensor"),
        ("export?format=python&name=nothing", 404, "unknown-tensor"),
        ("nothing", 404, "not-found"),
    ],
)
def test_invalid_views(client, trace, path, status, code):
    assert error_message(client.get(f"/api/trace/{trace['id']}/{path}"), status, code)


def test_unknown_routes_and_models(client):
    assert error_message(client.get("/api/trace"), 404, "not-found")
    assert error_message(client.get("/api/models/none@0/graph"), 404, "unknown-model")
    assert error_message(client.put("/api/trace", json={}), 405, "wrong-method")
    assert error_message(
        client.post("/api/head-ablation", json={"model": "x", "source": "a"}), 404, "unknown-model"
    )


EDITS = [
    "ablate",
    "row",
    "unscaled",
    "unmasked",
    "unpositioned",
    "shuffled",
    "temperature",
    "force",
    "patch",
]
FIELDS = [
    "kind",
    "attention",
    "head",
    "by",
    "query",
    "weights",
    "seed",
    "at",
    "value",
    "step",
    "token",
    "name",
    "values",
]
NAMES = [
    *EDITS,
    *("dec.0.cross", "enc.0.self", "dec.1.self", "out", "zero", "mean", "uniform"),
    *("out.logits", "src.embed"),
]
SCALARS = [
    *(None, True, 0, -1, 1, 2, 3, 10**30, 1.5, -0.0, 1e308, math.nan, math.inf),
    *("", "a", "\ud800", "Z"),
]


def random_value(draw: random.Random, depth: int = 0):
    """A valid but unexpected JSON value."""
    if depth < 3 and draw.random() < 0.3:
        return [random_value(draw, depth + 1) for _ in range(draw.randint(0, 4))]
    if depth < 3 and draw.random() < 0.3:
        return {
            draw.choice(FIELDS): random_value(draw, depth + 1) for _ in range(draw.randint(0, 4))
        }
    return draw.choice([*SCALARS, *NAMES])


def test_random_requests_never_crash_the_server(client, body):
    draw, statuses = random.Random(7), set()
    for attempt in range(400):
        changed = dict(body)
        if attempt % 2:  # a nearly valid edit
            fields = draw.sample(FIELDS, draw.randint(0, 5))
            edit = {field: random_value(draw, 2) for field in fields}
            changed["edits"] = [{**edit, "kind": EDITS[attempt // 2 % len(EDITS)]}]
        else:
            field = draw.choice(["model", "source", "target", "decoding", "edits", "more"])
            changed[field] = random_value(draw)
        response = client.post("/api/trace", content=json.dumps(changed), headers=JSON)
        statuses.add(response.status_code)
        if response.status_code != 200:
            assert response.status_code in (404, 422), (changed, response.text)
            code = response.json()["error"]["code"]
            assert error_message(response, response.status_code, code)
    assert statuses == {200, 404, 422}


def test_non_finite_numbers_are_strings_in_json():
    inf = math.inf
    value = {"a": [1.5, inf, (-inf, math.nan)], "\ud800": None}
    assert to_json(value) == '{"a":[1.5,"inf",["-inf","nan"]],"\\ud800":null}'
    assert to_json({"a": (1.5, 2)}) == '{"a":[1.5,2]}'
