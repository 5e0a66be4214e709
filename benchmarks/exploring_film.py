"""The training film in the benchmark of the explorer: frames per second while the slider moves.

A frame counts when the page has drawn the numbers of its snapshot. The ceiling is the rate at which
the browser draws an empty page.
"""

import random
from pathlib import Path

from exploring_browser import Site
from harness import Check

from regard.bundle.film_files import snapshot_steps
from regard.commands.film import reduce_film
from regard.config import TextSettings, TrainSettings
from regard.text import Corpus
from regard.training.run import Job, run

LEAST = 20.0  # frames per second
ROUNDS = 3
PAGES = ("attention", "heads", "alignment", "overview")
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


def measure_film(folder: Path) -> list[Check]:
    """Train a model with a film of 40 snapshots, and move its slider."""
    trained = train(folder)
    snapshots = len(snapshot_steps(trained / "film"))
    reduced = folder / "reduced.film.safetensors"
    reduce_film(trained, [], reduced)
    size = reduced.stat().st_size / 1e6
    checks = [
        Check("film: snapshots", snapshots, None, 40, snapshots >= 40),
        Check("film: reduced to three texts, MB", size, None, 2.0, size <= 2),
    ]
    with Site(str(trained)) as site:
        checks += [scrub(site, name, TEXT, "film") for name in PAGES]
    return checks


def measure_own_film(site: Site) -> list[Check]:
    """Move the slider of an included film, if there is one."""
    for entry in site.models:
        if entry["film"]:
            site.model = entry["id"]
            film = site.request(f"/api/models/{entry['id']}/film")
            text = film["probes"][0]["source"] if film["probes"] else entry["example"]
            return [scrub(site, name, text, f"film of {entry['name']}") for name in PAGES[:3]]
    return []


def scrub(site: Site, name: str, text: str, label: str) -> Check:
    """Frames per second on one page, once all its frames are loaded."""
    steps = site.request(f"/api/models/{site.model}/film")["steps"]
    page = site.open(name, s=text, c=steps[0])
    page.locator(f"[data-film][data-ready='{len(steps)}']").wait_for()
    rate, ceiling = page.evaluate(SCRUB, ROUNDS), page.evaluate(EMPTY, 120)
    page.context.close()
    return Check(f"{label}: scrubbing on {name!r}, frames/s", rate, ceiling, LEAST, rate >= LEAST)
