"""Every wrong request has its status and one line that says what is wrong; no request makes the server fail."""

import json
import random

import pytest

from regard.explore.requests import Ask
from regard.explore.traces import Traces
from tests.explore.small import client, refused


@pytest.fixture(scope="module")
def ask(ids):
    return {"model": ids["transformer"], "source": "aba", "target": "Z"}


@pytest.fixture(scope="module")
def trace(web, ask):
    return web.post("/api/trace", json=ask).json()


@pytest.mark.parametrize(
    ("change", "status", "code", "said"),
    [
        ({"model": "none@00000000"}, 404, "unknown-model", "unknown model 'none@00000000'; "),
        ({"model": None}, 422, "invalid", "model: input should be a valid string; got None"),
        ({"source": 3}, 422, "invalid", "source: input should be a valid string; got 3"),
        ({"source": "a" * 4_001}, 422, "too-long", "source: string should have at most 4000 characters; got 4,001"),
        ({"target": "Z " * 2_001}, 422, "too-long", "target: string should have at most 4000 characters; got 4,002"),
        (
            {"source": "a" * 257},
            422,
            "too-long",
            "the source has 257 tokens; the explorer takes 256 at most: shorten it",
        ),
        ({"target": "Z " * 257}, 422, "too-long", "the target has 257 tokens; the explorer takes 256 at most"),
        ({"source": " \n"}, 422, "empty", "the source is empty; type a text"),
        ({"source": "\ud800"}, 422, "invalid", "source: input should be a valid string, unable to parse"),
        ({"decode": {"beam": 17}}, 422, "invalid", "decode.beam: input should be less than or equal to 16; got 17"),
        ({"decode": {"beam": 0}}, 422, "invalid", "decode.beam: "),
        ({"decode": {"beam": "4"}}, 422, "invalid", "decode.beam: "),
        (
            {"decode": {"method": "guess"}},
            422,
            "invalid",
            "decode.method: input should be 'greedy' or 'beam'; got 'guess'",
        ),
        ({"decode": {"width": 4}}, 422, "invalid", "unknown field decode.width; leave it out"),
        ({"edits": [{}] * 33}, 422, "too-long", "edits: list should have at most 32 items"),
        ({"edits": [{}]}, 422, "invalid", ""),
        ({"edits": [{"kind": "nothing"}]}, 422, "invalid", "nothing"),
        ({"edits": [{"kind": "knock-out", "attention": "dec.9.cross", "head": 0, "by": "zero"}]}, 422, "invalid", ""),
        ({"edits": [{"kind": "knock-out", "attention": "dec.0.cross", "head": 9, "by": "zero"}]}, 422, "invalid", ""),
        ({"edits": [3]}, 422, "invalid", "edits.0: "),
        ({"more": 1}, 422, "invalid", "unknown field more; leave it out"),
        ({"\ud800": 1}, 422, "invalid", "unable to parse raw data as a unicode string; got '\\ud800'"),
    ],
)
def test_wrong_questions(web, ask, change, status, code, said):
    body = json.dumps({**ask, **change})
    answer = web.post("/api/trace", content=body, headers={"content-type": "application/json"})
    assert said in refused(answer, status, code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *((body, "invalid") for body in (b"", b"[]", b"3", b"null")),
        *((body, "wrong-json") for body in (b"{", b"\xff\xfe", b"[" * 50_000, b'{"model": ' + b"9" * 10_000 + b"}")),
    ],
)
def test_what_is_no_question_at_all(web, body, code):
    for path in ("/api/trace", "/api/tokenize", "/api/sweep"):
        assert refused(web.post(path, content=body, headers={"content-type": "application/json"}), 422, code)


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
        ("space?side=up", 422, "invalid"),
        ("output?row=99", 422, "out-of-range"),
        ("output?row=a", 422, "invalid"),
        ("output?row=0&word=", 422, "empty"),
        ("alignment?attention=enc.0.self", 404, "unknown-attention"),
        ("alignment?attention=dec.0.cross&head=2", 422, "out-of-range"),
        ("alignment?attention=mean&head=0", 422, "out-of-range"),
        ("walk?side=target&position=99", 422, "out-of-range"),
        ("export?format=docx", 422, "invalid"),
        ("export?format=csv", 422, "invalid"),
        ("export?format=npz&name=nothing", 404, "unknown-tensor"),
        ("export?format=python&name=nothing", 404, "unknown-tensor"),
        ("nothing", 404, "not-found"),
    ],
)
def test_wrong_views(web, trace, path, status, code):
    assert refused(web.get(f"/api/trace/{trace['id']}/{path}"), status, code)


def test_a_model_without_attention_has_no_alignment(tmp_path):
    from regard.config import RecurrentSettings
    from regard.explore.models import Models
    from tests.explore.small import saved

    models = Models.of([saved(tmp_path / "b", settings=RecurrentSettings(width=10, attention="none", cell="lstm"))])
    web, (model,) = client(models), models
    found = web.post("/api/trace", json={"model": model.id, "source": "aba"}).json()
    assert (model.entry["heads"], found["attentions"]) == (0, [])
    for view in ("alignment", "causes"):
        assert refused(web.get(f"/api/trace/{found['id']}/{view}"), 422, "no-attention")
    assert web.get(f"/api/trace/{found['id']}/wall").json() == {"heads": []}
    sweep = web.post("/api/sweep", json={"model": model.id, "source": "aba"}).json()
    assert (sweep["base"]["text"], sweep["heads"]) == (found["output"]["text"], [])


def test_wrong_ways(web, ids):
    assert refused(web.get("/api/trace"), 404, "not-found")
    assert refused(web.get("/api/models/none@0/graph"), 404, "unknown-model")
    assert refused(web.put("/api/trace", json={}), 405, "wrong-method")
    assert refused(web.post("/api/sweep", json={"model": "x", "source": "a"}), 404, "unknown-model")


def test_traces_are_bounded_by_count_and_bytes_and_come_again(models, ids):
    def asked(word):
        return Ask(model=ids["transformer"], source=word, target="Z")

    words = ["a", "aba", "n", "nabob"]
    traces = Traces(models, count=2)
    held = [traces.ask(asked(word)) for word in words]
    assert len(traces) == 2
    assert traces[held[-1].id] is held[-1]
    again = traces[held[0].id]  # dropped, but it is known how it was asked
    assert again is not held[0]
    assert again.trace["out.total"] == held[0].trace["out.total"]

    small = Traces(models, bytes=held[1].bytes + held[2].bytes)
    for word in words[:3]:
        small.ask(asked(word))
    assert len(small) == 2
    assert small.size <= small.bytes
    tiny = Traces(models, bytes=1)
    assert tiny.ask(asked("a")) is tiny[asked("a").id]  # the newest stays, whatever its size


def test_a_trace_that_nobody_remembers_is_gone(models, ask):
    web = client(models, Traces(models, count=1, remembered=1))
    first = web.post("/api/trace", json=ask).json()["id"]
    web.post("/api/trace", json={**ask, "source": "n"})
    for id in (first, "never", "x" * 5_000):
        for path in ("wall", "tensors?name=out.total", "export?format=html"):
            assert refused(web.get(f"/api/trace/{id}/{path}"), 410, "trace-dropped")
    assert web.post("/api/trace", json=ask).json()["id"] == first
    assert web.get(f"/api/trace/{first}/wall").status_code == 200


EDITS = ["knock-out", "row", "unscaled", "unmasked", "unpositioned", "shuffled", "temperature", "force", "patch"]
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
WORDS = [*EDITS, "dec.0.cross", "enc.0.self", "dec.1.self", "out", "zero", "mean", "uniform", "out.logits", "src.embed"]


def strange(draw: random.Random, depth: int = 0):
    """A value that JSON can hold and nobody expects."""
    plain = [None, True, 0, -1, 1, 2, 3, 10**30, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "a", "\ud800", "Z"]
    if depth < 3 and draw.random() < 0.3:
        return [strange(draw, depth + 1) for _ in range(draw.randint(0, 4))]
    if depth < 3 and draw.random() < 0.3:
        return {draw.choice(FIELDS): strange(draw, depth + 1) for _ in range(draw.randint(0, 4))}
    return draw.choice([*plain, *WORDS])


def test_strange_questions_are_refused_and_nothing_fails(web, ask):
    draw, statuses = random.Random(7), set()
    for turn in range(400):
        body = dict(ask)
        if turn % 2:  # an edit that is nearly right
            edit = {field: strange(draw, 2) for field in draw.sample(FIELDS, draw.randint(0, 5))}
            body["edits"] = [{**edit, "kind": EDITS[turn // 2 % len(EDITS)]}]
        else:
            body[draw.choice(["model", "source", "target", "decode", "edits", "more"])] = strange(draw)
        answer = web.post("/api/trace", content=json.dumps(body), headers={"content-type": "application/json"})
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            assert answer.status_code in (404, 422), (body, answer.text)
            assert refused(answer, answer.status_code, answer.json()["error"]["code"])
    assert statuses == {200, 404, 422}
