"""Takes the screenshots of the guide from the included models: `make tour`. Needs Chromium.

Each screenshot is a link into the explorer, so readers can open what it shows.
"""

import io
import signal
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

sys.path.append(str(Path(__file__).parents[2]))
from tests.browser.conftest import CHROMIUM, FLAGS, TIMEOUT, new_context, wait_until_idle

PICTURES = Path(__file__).parents[1] / "pictures"
SENTENCE = "s=I+have+never+seen+her+before."
WEIGHT = "a=dec.1.cross&h=2&i=7&j=3&x=dec.1.cross.weights,2,7,3"
WITHOUT_POSITIONS = "t=AH+T+EH+N+SH+AH+N&e=unpositioned&h=1"
REFERENCE = "ref=%23%2Fcompare%3Fm%3D{id}&o.tensor=dec.1.cross.weights"
VIEWS = {  # name: (model, theme, the rest of the link)
    "overview": ("english-german", "light", f"overview?{SENTENCE}"),
    "attention": ("english-german", "light", f"attention?{SENTENCE}&{WEIGHT}"),
    "heads": ("english-german", "dark", f"heads?{SENTENCE}"),
    "alignment": ("english-german-recurrent", "light", f"alignment?{SENTENCE}"),
    "residual": ("english-german", "light", f"residual?{SENTENCE}"),
    "output": ("english-german", "dark", f"output?{SENTENCE}&r=7"),
    "decode": ("english-german", "light", f"decode?{SENTENCE}&d=4"),
    "ablation": ("english-german", "light", f"ablation?{SENTENCE}&r=7"),
    "compare": ("spelling", "dark", f"compare?s=attention&{WITHOUT_POSITIONS}&{REFERENCE}"),
}
START = {"ablation": "section:has(#occlusion)"}  # the top of a screenshot, if not the page's


def main() -> None:
    """Take all screenshots, or those named on the command line."""
    command = [sys.executable, "-m", "regard", "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    PICTURES.mkdir(exist_ok=True)
    try:
        assert server.stdout
        words = server.stdout.readline().split()
        address = next(word for word in words if word.startswith("http")).rstrip("/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name in sys.argv[1:] or VIEWS:
                model, theme, rest = VIEWS[name]
                size = {"width": 1280, "height": 860}
                options = {"viewport": size, "color_scheme": theme, "reduced_motion": "reduce"}
                context = new_context(browser, **options)
                take(context.new_page(), address, model, rest, PICTURES / f"{name}.png")
                context.close()
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(TIMEOUT)


def take(page: Page, address: str, model: str, rest: str, path: Path) -> None:
    """Save one view, once it is loaded, with few enough colours for a small file."""
    models = page.request.get(f"{address}/api/models").json()["models"]
    id = next(one["id"] for one in models if one["name"] == model)
    page.goto(f"{address}/#/{rest.replace('?', f'?m={id}&').replace('{id}', id)}")
    wait_until_idle(page)
    if path.stem in START:
        page.locator(START[path.stem]).evaluate("node => node.scrollIntoView()")
        wait_until_idle(page)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = picture.quantize(192, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
