"""The threads of the native engine: they wait between searches, and a fork starts its own."""

import subprocess
import sys
from pathlib import Path

from regard.pretrained import MODELS

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from regard.native import NativeModel, NativeOptions, read_tensors
home = Path(sys.argv[1])
config = json.loads((home / "config.json").read_text())
sizes = config["vocabulary"]["source"], config["vocabulary"]["target"]
model = NativeModel(config["model"], sizes, read_tensors(home / "weights.safetensors"))
def search():
    found = model.search([[3, 4, 5], [6, 7]] * 4, [9] * 8, NativeOptions(), threads=3)
    return [one[0].ids for one in found]
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
expected = search()
started = threads()
assert all(search() == expected for _ in range(20))
assert threads() == started, (started, threads())
child = os.fork()
if not child:
    signal.alarm(60)  # ends a process that waits for threads it does not have
    os._exit(0 if search() == expected and search() == expected else 1)
assert os.waitpid(child, 0)[1] == 0
assert search() == expected
"""


def test_threads_are_kept_and_a_fork_starts_its_own():
    script = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(Path(MODELS, "spelling"))]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
