"""Makes the pictures of the README's tour from the shipped models: `make tour`. Needs Chromium.

Every picture is a link into the explorer, so that what it shows can be opened and clicked.
"""

import io
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from browser.conftest import CHROMIUM, FLAGS, until

PICTURES = Path(__file__).parent / "pictures"
VIEWS = {  # name: (model, theme, the rest of the link)
    "overview": ("spelling", "light", "overview?s=attention"),
    "attention": (
        "spelling",
        "light",
        "attention?s=attention&a=dec.1.cross&h=1&i=4&j=5&x=dec.1.cross.weights,1,4,5",
    ),
    "heads": ("spelling", "dark", "heads?s=attention"),
    "alignment": ("spelling-recurrent", "light", "alignment?s=attention"),
    "walk": ("spelling", "light", "walk?s=attention"),
    "output": ("spelling", "dark", "output?s=attention&r=3"),
    "decode": ("spelling", "light", "decode?s=attention&d=4"),
    "knockout": ("spelling", "light", "knockout?s=attention&r=4"),
    "compare": (
        "spelling",
        "dark",
        "compare?s=attention&t=AH+T+EH+N+SH+AH+N&e=unpositioned&h=1&with=%23%2Fcompare%3Fm%3D{id}&o.tensor=dec.1.cross.weights",
    ),
}

TO = {"knockout": "section:has(#cause)"}  # where a view's picture begins, if not at the top


def main() -> None:
    command = [sys.executable, "-m", "regard", "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    PICTURES.mkdir(exist_ok=True)
    try:
        assert server.stdout
        address = next(word for word in server.stdout.readline().split() if word.startswith("http")).rstrip("/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name, (model, theme, rest) in VIEWS.items():
                context = browser.new_context(
                    viewport={"width": 1280, "height": 860},
                    color_scheme=theme,
                    reduced_motion="reduce",
                )
                shoot(context.new_page(), address, model, rest, PICTURES / f"{name}.png")
                context.close()
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(180)


def shoot(page: Page, address: str, model: str, rest: str, path: Path) -> None:
    """One view, when all its numbers are there, in few enough colours for a small file."""
    models = page.request.get(f"{address}/api/models").json()["models"]
    id = next(one["id"] for one in models if one["name"] == model)
    page.goto(f"{address}/#/{rest.replace('?', f'?m={id}&').replace('{id}', id)}")
    page.wait_for_load_state("networkidle")
    until(page, "!document.querySelector('[aria-busy=true]')")
    if path.stem in TO:
        page.locator(TO[path.stem]).evaluate("node => node.scrollIntoView()")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(192, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
