"""Malformed requests: always a status of 4xx with one line, never a traceback or a 5xx."""

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.serving_fuzz import RequestFuzzer, send
from regard.web.http_limits import HttpLimits
from tests.serve.http_helpers import error_of, exchange, get, post, running, split


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found
        assert not [line for line in found.log_lines() if line["event"] == "bug"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is not valid JSON"),
        (b"{", "the body is not valid JSON"),
        (b'{"input": "a"}}', "the body is not valid JSON"),
        (b'{"input": "\xff"}', "the body is not valid JSON"),
        (b'\xef\xbb\xbf{"input": "a"}', "the body is not valid JSON"),
        ('{"input": "a"}'.encode("utf-16"), "the body is not valid JSON"),
        (rb'{"input": "\ud800"}', "the body is not valid JSON"),
        (b'{"input": "a\x00"}', "the body is not valid JSON"),
        (b"[" * 100_000, "the body is not valid JSON"),
        (b'{"input": "a", "seed": %b}' % (b"9" * 10_000), "the body is not valid JSON"),
        (b'{"input": "a", "temperature": NaN}', "temperature: "),
        (b'{"input": "a", "temperature": -Infinity}', "temperature: "),
        (b'{"input": "a", "temperature": 1e999}', "temperature: "),
        (b'{"input": "a", "input": "b"}', "field input occurs twice; remove one"),
        (rb'{"input": "a", "inpu\u0074": "b"}', "field input occurs twice; remove one"),
        (b'{"input": "a", "x": {"y": 1, "y": 2}}', "unknown field x; remove it"),
        (b'"input"', "the request: input should be an object"),
        (b"null", "the request: input should be an object"),
    ],
)
def test_bad_json_is_rejected_in_one_line(server, body, words):
    reply = post(server.port, "/v1/generate", body)
    error = error_of(reply, 400 if words.startswith("the body") else 422)
    assert error["message"].startswith(words)
    assert len(error["message"]) < 200


def test_equal_texts_are_no_duplicate_keys(server):
    body = rb'{"input": ["\"input\": ", "input", "input"], "prefix": "input"}'
    assert post(server.port, "/v1/generate", body)[0] == 200


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json; charset="utf-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
        ("application/json, text/plain", 415),
    ],
)
def test_only_json_in_utf8_is_accepted(server, kind, status):
    reply = post(server.port, "/v1/generate", {"input": "a"}, kind=kind)
    assert reply[0] == status
    compressed = post(
        server.port, "/v1/generate", b"x", kind=kind, headers={"content-encoding": "gzip"}
    )
    assert error_of(compressed, 415)["code"] == "wrong_type"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/generate", 405),
        ("DELETE", "/v1/models", 405),
        ("PUT", "/translate", 405),
        ("POST", "/v2/health/live", 405),
        ("POST", "/nowhere", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/static/../serve_log.py", 404),
        ("GET", "/static/%2e%2e/serve_log.py", 404),
        ("GET", "/static/", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/%00", 404),
        ("BREW", "/v1/generate", 400),
    ],
)
def test_unknown_paths_and_methods(server, method, path, status):
    reply = get(server.port, path, method=method)
    assert reply[0] == status
    if status == 405 and path != "/translate":
        assert error_of(reply, 405)["code"] == "wrong_method"
        assert reply[1]["allow"] in ("get", "post")
    if status == 404:
        assert error_of(reply, 404)["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n\r\n\r\n\0\0\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ncontent-length: 1\r\n"
        b"content-length: 2\r\n\r\nab",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ncontent-length: 9\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: HOST\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: HOST\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: HOST\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET " + b"/" * 300_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
    ],
)
def test_bad_http_is_refused(server, content):
    host = b"127.0.0.1:%d" % server.port
    status, _, body = split(exchange(server.port, content.replace(b"HOST", host)))
    assert 400 <= status < 500
    assert b"Traceback" not in body


def test_body_limit_is_named():
    with running(limits=HttpLimits(body_bytes=1_000)) as server:
        fitting = json.dumps({"input": "a" * (1_000 - 13)})
        assert len(fitting) == 1_000
        assert post(server.port, "/v1/generate", fitting)[0] == 200
        error = error_of(post(server.port, "/v1/generate", fitting + " "), 413)
        assert error["message"] == "the request has over 1,000 bytes; send less"
        head = f"POST /v1/generate HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n".encode()
        head += b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = b"200\r\n" + b" " * 512 + b"\r\n"
        assert split(exchange(server.port, head + 2 * chunk))[0] == 413


def test_chunked_bodies_are_read(server):
    head = f"POST /v1/generate HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\nconnection: close\r\n"
    head += "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    status, _, body = split(
        exchange(server.port, head.encode() + b'5\r\n{"inp\r\n9;x=y\r\nut":"ab"}\r\n0\r\n\r\n')
    )
    assert status == 200
    assert b'"text": "ba"' in body


def test_fuzzed_requests_get_no_5xx():
    with running(limits=HttpLimits(idle_seconds=0.5)) as server, ThreadPoolExecutor(16) as pool:
        fuzzer = RequestFuzzer(random.Random(5), server.port)
        contents = [fuzzer.request() for _ in range(400)]
        statuses = Counter(pool.map(send(server.port), contents))
        assert not [status for status in statuses if status is not None and status >= 500]
        assert {200, 400, 404, 415, 422} <= set(statuses)
        assert statuses[None] < 40  # closed without a response: incomplete headers
        assert post(server.port, "/v1/generate", {"input": "ab"})[0] == 200
        assert not [line for line in server.log_lines() if line["event"] == "bug"]
