"""wrk, the load generator: closed loop, or with random pauses for a given rate."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# `pause` is the mean pause of a connection in milliseconds, exponentially distributed.
SCRIPT = """
local bodies, count = {}, 0
local statuses = {}
local threads = {}
function setup(thread) thread:set("seed", #threads + 1) table.insert(threads, thread) end
function init(arguments)
  math.randomseed(seed)
  for line in io.lines(arguments[1]) do count = count + 1 bodies[count] = line end
  pause, path = tonumber(arguments[2]), arguments[3]
  refused = 0
  if pause == 0 then delay = nil end
end
function delay() return math.floor(-pause * math.log(1 - math.random())) end
function request()
  local headers = {["Content-Type"] = "application/json"}
  if path == "" then return wrk.format("GET") end
  return wrk.format("POST", path, headers, bodies[math.random(count)])
end
function response(status, headers, body) if status ~= 200 then refused = refused + 1 end end
function done(summary, latency, requests)
  local refused = 0
  for _, thread in ipairs(threads) do refused = refused + thread:get("refused") end
  local errors = summary.errors.connect + summary.errors.read + summary.errors.write
  local found = string.format(
    '{"requests": %d, "refused": %d, "errors": %d, "timeouts": %d, "seconds": %f, ' ..
    '"p50": %f, "p99": %f}', summary.requests, refused, errors, summary.errors.timeout,
    summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6)
  print("RESULT " .. found)
end
"""


@dataclass
class Measurement:
    """What wrk measured: requests, refusals (other than status 200), seconds and latencies."""

    requests: int
    refused: int
    errors: int
    timeouts: int
    seconds: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        """Answered requests per second."""
        return (self.requests - self.refused) / self.seconds


class Wrk:
    """Sends prepared request bodies."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self.program = shutil.which("wrk")
        if self.program is None:
            raise SystemExit("this benchmark needs wrk: apt-get install wrk")
        self._folder = tempfile.TemporaryDirectory()
        self.script = Path(self._folder.name, "load.lua")
        self.script.write_text(SCRIPT)
        self.bodies = Path(self._folder.name, "bodies")
        self.bodies.write_bytes(b"\n".join(bodies) + b"\n")

    def run(
        self,
        address: str,
        *,
        path: str = "/v1/generate",
        clients: int,
        seconds: float,
        pause: float = 0.0,
    ) -> Measurement:
        """Load a server; `pause` is the mean pause of each client in seconds."""
        assert self.program
        script = SCRIPT if pause else SCRIPT.replace("function delay()", "function unused()")
        self.script.write_text(script)
        command = [self.program, "-t1", f"-c{clients}", f"-d{seconds:.0f}s", "--timeout", "30s"]
        command += ["-s", str(self.script), address, "--", str(self.bodies)]
        output = subprocess.run(
            [*command, str(1_000 * pause), path], capture_output=True, text=True, check=True
        ).stdout
        (line,) = (line for line in output.splitlines() if line.startswith("RESULT "))
        return Measurement(**json.loads(line.removeprefix("RESULT ")))
