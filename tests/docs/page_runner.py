"""Runs the code blocks of all pages: `python -m tests.docs.page_runner FOLDER`.

One process for all pages imports torch once and, unlike the tests, without type checks. It prints
one JSON object: for each page the number of executed blocks, its CPU seconds and its error, if any.
"""

import json
import os
import random
import shutil
import sys
import time
import traceback
from pathlib import Path

from regard.model_location import find_model
from regard.training.cmudict import dictionary
from tests.docs.page_blocks import PAGES, ROOT, Session, blocks_of

SEPARATE = {  # other tests run these pages
    "docs/bulk.md",  # tests/bulk/test_schedulers.py
    "docs/custom_parts.md",  # tests/docs/test_custom_parts.py
}
RUNS = {  # models that a page expects: copies of runs/pairs; of an included one as a teacher
    "docs/guides/compress.md": ["teacher"],
    "docs/guides/train.md": ["a", "b"],
    "docs/serving.md": ["en-de", "fr"],
    "docs/tutorials/serve.md": ["words", "en-de", "fr"],
}


def pages_to_run() -> list[str]:
    """The pages with at least one block to execute."""
    found = [page for page in PAGES if any(block.is_run for block in blocks_of(page))]
    return [
        str(page.relative_to(ROOT)) for page in found if str(page.relative_to(ROOT)) not in SEPARATE
    ]


def lines(words: list[tuple[str, str]]) -> str:
    """Pairs as TSV."""
    return "".join(f"{word}\t{phones}\n" for word, phones in words)


def make_workspace(folder: Path) -> Path:
    """words.txt, pairs.tsv, test.tsv, names.tsv and runs/demo, runs/pairs: a model of seconds."""
    folder.mkdir(parents=True)
    words = [pair for pair in dictionary() if 3 <= len(pair[0]) <= 8]
    chosen = random.Random(1).sample(words, 260)
    (folder / "pairs.tsv").write_text(lines(chosen[:200]))
    (folder / "names.tsv").write_text(lines(chosen[200:240]))
    (folder / "test.tsv").write_text(lines(chosen[240:]))
    (folder / "words.txt").write_text("attention\ntension\nnoise\n")
    os.chdir(folder)
    Session(folder, {}).regard(["train", "pairs.tsv"])
    shutil.copytree(folder / "runs/pairs", folder / "runs/demo")
    return folder


def run_page(page: str, workspace: Path, folder: Path) -> dict[str, object]:
    """Run the blocks of one page in order, in a copy of the workspace."""
    shutil.copytree(workspace, folder)
    for name in RUNS.get(page, []):
        model = find_model("spelling") if name == "teacher" else folder / "runs/pairs"
        shutil.copytree(model, folder / "runs" / name)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    session, done, start = Session(folder, {"__name__": "__main__"}), 0, time.process_time()
    error = None
    for block in blocks_of(ROOT / page):
        try:
            session.run(block)
        except BaseException:
            error = f"line {block.line}: {traceback.format_exc()}"
            break
        done += block.is_run
    try:
        session.close()
    except BaseException:
        error = error or f"stopping the servers: {traceback.format_exc()}"
    sys.path.remove(str(folder))
    return {"done": done, "seconds": round(time.process_time() - start, 1), "error": error}


def main() -> None:
    """Run all pages, or those named after the folder."""
    home = Path(sys.argv[1]).resolve()
    workspace = make_workspace(home / "workspace")
    chosen = sys.argv[2:] or pages_to_run()
    results = {
        page: run_page(page, workspace, home / str(number)) for number, page in enumerate(chosen)
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
