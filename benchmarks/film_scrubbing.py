"""The training film in a browser: frames per second while the slider is moved.

    python benchmarks/film_scrubbing.py            # needs Chromium and the dev packages

Trains a small Transformer for a few hundred steps with a film of 40 snapshots, opens it, lets the
page load all frames of one text, and moves the slider through the film. A frame counts when the
page has drawn the weights of its snapshot. The ceiling is the rate at which the browser draws an
empty page.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from harness import Check, no_options, report
from playwright.sync_api import Page, sync_playwright

from regard.bundle.film_files import snapshot_steps
from regard.commands.film import reduce_film
from regard.config import TextSettings, TrainSettings
from regard.text import Corpus
from regard.training.run import Job, run

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from browser.conftest import CHROMIUM, FLAGS  # the browser of the tests

LEAST = 20.0  # frames per second
ROUNDS = 3
MODEL = {"width": 32, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "ffn_width": 64}
TEXT = "abcdef"

# Moves the slider through all snapshots; each frame waits until the page has drawn its numbers.
SCRUB = """async (rounds) => {
  const slider = document.querySelector('[data-film] input[type=range]');
  const point = document.querySelector('[data-point]');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const most = Number(slider.max) - 1;
  let frames = 0;
  const start = performance.now();
  for (let round = 0; round < rounds; round++)
    for (let at = 0; at <= most; at++) {
      if (Number(slider.value) === at) continue;
      const before = point.innerText;
      slider.value = String(at);
      slider.dispatchEvent(new Event('input', { bubbles: true }));
      do await frame();
      while (point.innerText === before || document.querySelector('[aria-busy=true]'));
      frames++;
    }
  return (1000 * frames) / (performance.now() - start);
}"""
EMPTY = """async (frames) => {
  const start = performance.now();
  for (let k = 0; k < frames; k++) await new Promise((done) => requestAnimationFrame(done));
  return (1000 * frames) / (performance.now() - start);
}"""


def train(folder: Path) -> Path:
    """A run on words to reverse, with a film."""
    draw = random.Random(0)
    words = {"".join(draw.choices("abcdefgh", k=draw.randint(3, 8))) for _ in range(3_000)}
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{word}\t{word[::-1]}\n" for word in sorted(words)))
    settings = TrainSettings(steps=500, batch_tokens=1024, evaluations=2)
    text = TextSettings(max_tokens=16)
    corpus = Corpus(data)
    run(Job(corpus, folder / "run", size="tiny", model=MODEL, text=text, train=settings))
    return folder / "run"


def measure_page(page: Page, address: str, model: str, name: str, snapshots: int) -> Check:
    """Frames per second on one page, once all its frames are loaded."""
    page.goto("about:blank")
    page.goto(f"{address}/#/{name}?m={model}&s={TEXT}&c=0&a=dec.0.cross")
    while page.locator("[data-film]").get_attribute("data-ready") != str(snapshots):
        page.wait_for_timeout(100)
    rate = page.evaluate(SCRUB, ROUNDS)
    ceiling = page.evaluate(EMPTY, 120)
    return Check(f"scrubbing on the page {name!r}, frames/s", rate, ceiling, LEAST, rate >= LEAST)


def main() -> None:
    """Measure and report."""
    no_options(__doc__)
    checks = []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = train(Path(place))
        snapshots = len(snapshot_steps(folder / "film"))
        checks.append(Check("snapshots of the film", snapshots, None, 40, snapshots >= 40))
        size = sum(path.stat().st_size for path in (folder / "film").iterdir()) / 1e6
        checks.append(Check("film of 52,384 parameters, MB", size, None, None, True))
        reduced = Path(place) / "reduced.film.safetensors"
        reduce_film(folder, [], reduced)
        size = reduced.stat().st_size / 1e6
        checks.append(Check("reduced film of three texts, MB", size, None, 2.0, size <= 2))
        command = [sys.executable, "-m", "regard", "explore", str(folder), "--port", "0"]
        server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
        assert server.stdout
        line = server.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://")).rstrip("/")
        with urlopen(f"{address}/api/models") as response:
            model = json.load(response)["models"][0]["id"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(300_000)
        time.sleep(5)  # the markers are found meanwhile
        for name in ("attention", "heads", "alignment", "overview"):
            checks.append(measure_page(page, address, model, name, snapshots))
        browser.close()
        server.send_signal(signal.SIGINT)
        server.wait()
    report("film_scrubbing", checks)


if __name__ == "__main__":
    main()
