"""The endpoints: requests in, outputs out, in our own, OpenAI's and LibreTranslate's form."""

import json
from dataclasses import fields

import pytest

from regard.decoding_options import DecodingOptions
from regard.serve.service_errors import (
    DeadlineExceeded,
    Draining,
    QueueFull,
    TooLarge,
    UnknownModel,
    WorkerLost,
)
from tests.serve.http_helpers import FakeService, answer, error_of, get, post, running

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture(autouse=True)
def _reset(server):
    server.service.error = None
    server.service.calls.clear()


def generate(server, **body):
    return post(server.port, "/v1/generate", body)


def test_a_text_gives_one_list_of_outputs(server):
    status, headers, body = generate(server, input="abc")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"model": "reverse", "outputs": [[answer("abc")]]}
    assert server.service.calls == [("reverse", ["abc"], {}, False, None)]


def test_a_list_keeps_its_order(server):
    _, _, body = generate(server, input=["ab", "", "größe 🎉"], n_best=2, alignment=True)
    outputs = json.loads(body)["outputs"]
    assert [[one["text"] for one in answers] for answers in outputs] == [
        ["ba", "ba"],
        ["", ""],
        ["🎉 eßörg", "🎉 eßörg"],
    ]
    assert outputs[0][0]["alignment"] == [[0, 0]]


def test_every_decoding_option_reaches_the_service(server):
    given = {
        "beam": 3, "length_penalty": 0.5, "min_length": 1, "max_length": 9, "prefix": "p",
        "ban": ["x", "y"], "require": "z", "repetition_penalty": 1.5, "no_repeat_ngram": 2,
        "source_language": "en", "target_language": "de", "n_best": 2, "sample": False,
        "temperature": 1, "top_k": None, "top_p": 0.5, "min_p": 0.25, "seed": 7,
    }  # fmt: skip
    assert set(given) == {field.name for field in fields(DecodingOptions)}
    status, _, body = generate(server, input="a", deadline=2.5, **given)
    assert status == 200, body
    ((_, _, options, _, deadline),) = server.service.calls
    assert options == {**given, "ban": ("x", "y")}
    assert deadline == 2.5


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "input", "input is missing; add it"),
        ({"input": 5}, "input", "input: input should be a valid string; got 5"),
        ({"input": ["a", None]}, "input", "input.1: input should be a valid string; got None"),
        ({"input": "a", "beem": 4}, "beem", "unknown field beem; remove it"),
        ({"input": "a", "beam": "4"}, "beam", "beam: input should be a valid integer; got '4'"),
        ({"input": "a", "beam": True}, "beam", "beam: input should be a valid integer"),
        ({"input": "a", "beam": 10**30}, "beam", "beam: "),
        ({"input": "a", "seed": -1}, "seed", "seed: input should be greater than or equal to 0"),
        ({"input": "a", "ban": [[1]]}, "ban", "ban"),
        ({"input": "a", "deadline": 0}, "deadline", "deadline: input should be greater than 0"),
        ({"input": "a", "sample": 1}, "sample", "sample: input should be a valid boolean"),
        ([1], None, "the request: input should be an object"),
    ],
)
def test_invalid_fields_are_named(server, body, field, words):
    error = error_of(post(server.port, "/v1/generate", body), 422)
    assert error["message"].startswith(words)
    assert (error["param"], error["type"]) == (field, "invalid_request_error")
    assert server.service.calls == []


def test_a_stream_sends_pieces_the_answer_and_done(server):
    status, headers, body = generate(server, input="abcde", stream=True, beam=4)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *events, done, end = body.decode().split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    assert [json.loads(event.removeprefix("data: ")) for event in events] == [
        {"piece": "ed"},
        {"piece": "cb"},
        {"piece": "a"},
        {"answer": answer("abcde")},
    ]
    assert server.service.calls == [("reverse", "abcde", {"beam": 4}, None)]


def test_an_error_in_a_stream_is_an_event(server):
    server.service.error = DeadlineExceeded("not answered within 30 seconds")
    _, _, body = generate(server, input="ab", stream=True)
    first, error, done, _ = body.decode().split("\n\n")
    assert (first, done) == ('data: {"piece":"ba"}', "data: [DONE]")
    kind, data = error.split("\n")
    assert kind == "event: error"
    found = json.loads(data.removeprefix("data: "))["error"]
    assert (found["code"], found["type"]) == ("deadline_exceeded", "server_error")


def test_a_stream_that_cannot_start_has_its_status(server):
    server.service.error = QueueFull("the queue is full", retry_after=3)
    reply = generate(server, input="", stream=True)
    assert error_of(reply, 429)["code"] == "queue_full"
    server.service.error = None
    for wrong in ({"input": ["a"]}, {"input": "a", "n_best": 2}, {"input": "a", "alignment": True}):
        assert "stream" in error_of(generate(server, stream=True, **wrong), 422)["message"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (TooLarge("over 3 texts"), 413, "invalid_request_error"),
        (UnknownModel("no model 'x'"), 404, "not_found_error"),
        (QueueFull("full", retry_after=2.2), 429, "rate_limit_error"),
        (Draining("stopping", retry_after=1), 503, "server_error"),
        (WorkerLost("two workers died"), 503, "server_error"),
        (DeadlineExceeded("late"), 504, "server_error"),
    ],
)
def test_errors_of_the_service_keep_their_status(server, error, status, kind):
    server.service.error = error
    for path in ("/v1/generate", "/v1/translations"):
        reply = post(server.port, path, {"input": "a"})
        found = error_of(reply, status)
        assert (found["message"], found["type"], found["code"]) == (str(error), kind, error.code)
        waits = {429: "3", 503: "1"} if error.retry_after else {}
        assert reply[1].get("retry-after") == waits.get(status)
    status_there, _, body = post(server.port, "/translate", {"q": "a", "target": "x"})
    assert (status_there, json.loads(body)) == (status, {"error": str(error)})


def test_a_bug_is_logged_and_not_shown():
    service = FakeService()
    service.error = KeyError("a secret of the server")
    with running(service) as server:
        error = error_of(generate(server, input="a"), 500)
        assert error["message"].startswith("KeyError in the server: this is a bug")
        assert "secret" not in error["message"]
        bug = next(line for line in server.log_lines() if line["event"] == "bug")
        assert "a secret of the server" in "".join(bug["traceback"])


def test_translations_have_openais_envelope(server):
    _, _, body = post(server.port, "/v1/translations", {"input": ["ab", "c"], "n_best": 2})
    found = json.loads(body)
    assert found.pop("created") > 1_700_000_000
    one = {"object": "translation", "confidence": 0.25}
    assert found == {
        "object": "list",
        "model": "reverse",
        "data": [
            {**one, "index": 0, "text": "ba", "alternatives": ["ba"]},
            {**one, "index": 1, "text": "c", "alternatives": ["c"]},
        ],
        "usage": {"completion_tokens": 6},
    }


def test_models_are_listed_and_shown(server):
    _, _, body = get(server.port, "/v1/models")
    (model,) = json.loads(body)["data"]
    assert (model["id"], model["object"], model["created"]) == ("reverse", "model", 1000)
    assert json.loads(get(server.port, "/v1/models/reverse")[2]) == model
    assert "served are: reverse" in error_of(get(server.port, "/v1/models/x"), 404)["message"]


def test_a_model_is_chosen_by_name():
    with running(FakeService("one", "two")) as server:
        assert json.loads(generate(server, input="a", model="two")[2])["model"] == "two"
        missing = error_of(generate(server, input="a"), 422)
        assert missing["message"].endswith("name one of the served models: one, two")
        assert error_of(generate(server, input="a", model="x"), 404)["code"] == "unknown_model"


def test_libretranslate_takes_json_and_forms(server):
    def translate(body, **options):
        status, _, content = post(server.port, "/translate", body, **options)
        return status, json.loads(content)

    both = {"source": "en", "target": "de", "format": "text", "api_key": ""}
    assert translate({"q": "ab", **both}) == (200, {"translatedText": "ba", "confidence": 0.25})
    assert translate({"q": ["ab", "c"], "alternatives": 1, **both}) == (
        200,
        {
            "translatedText": ["ba", "c"],
            "confidence": [0.25, 0.25],
            "alternatives": [["ba"], ["c"]],
        },
    )
    form = "q=gr%C3%B6+ab&source=en&target=de&alternatives=1"
    found = {"translatedText": "ba örg", "confidence": 0.25, "alternatives": ["ba örg"]}
    assert translate(form, kind=FORM) == (200, found)
    assert translate("q=a&q=b&target=x", kind=FORM)[1]["translatedText"] == ["a", "b"]


def test_libretranslate_errors_have_its_form(server):
    for body, words in [
        ({"q": "a"}, "target is missing; add it"),
        ({"q": "a", "target": "x", "format": "html"}, "format: input should be 'text'"),
        ({"q": 3, "target": "x"}, "q: input should be a valid string"),
    ]:
        status, _, content = post(server.port, "/translate", body)
        error = json.loads(content)
        assert status == 400
        assert set(error) == {"error"}
        assert error["error"].startswith(words)


def test_languages_choose_the_model():
    service = FakeService("en-de", "many")
    service.models["many"] = service.models["many"].__class__(
        "many", "print", 1.0, "native", "cpu", {}, ("fr", "es")
    )
    with running(service) as server:
        listed = json.loads(get(server.port, "/languages")[2])
        assert [(one["code"], one["targets"]) for one in listed] == [
            ("de", []),
            ("en", ["de"]),
            ("es", ["fr"]),
            ("fr", ["es"]),
        ]
        for source, target in (("en", "de"), ("fr", "es")):
            body = {"q": "a", "source": source, "target": target}
            assert post(server.port, "/translate", body)[0] == 200
        codes = {"source_language": "fr", "target_language": "es"}
        assert [call[0::2][:2] for call in service.calls] == [("en-de", {}), ("many", codes)]
        status, _, content = post(
            server.port, "/translate", {"q": "a", "source": "de", "target": "en"}
        )
        assert status == 400
        assert "no model translates de to en" in json.loads(content)["error"]


def test_health_follows_the_service(server):
    assert get(server.port, "/v2/health/live")[0] == 200
    assert get(server.port, "/v2/health/ready")[0] == 200
    server.service.ready = False
    try:
        assert get(server.port, "/v2/health/ready")[0] == 503
        assert get(server.port, "/v2/health/live")[0] == 200
    finally:
        server.service.ready = True


def test_while_models_load_requests_get_503():
    service = FakeService()
    service.models, service.ready = {}, False
    with running(service) as server:
        for path, body in (
            ("/v1/generate", {"input": "a"}),
            ("/translate", {"q": "a", "target": "x"}),
        ):
            status, headers, _ = post(server.port, path, body)
            assert (status, headers["retry-after"]) == (503, "1")
