"""The man hit the car: order matters only with positions."""

import regard

pipeline = regard.load("spelling")
search = pipeline.search(beam=1)


def read(word: str, edits: list[dict[str, str]]) -> regard.Trace:
    return regard.record(pipeline, word, search=search, edits=edits)


for title, edits in (("with positions", []), ("without", [{"kind": "unpositioned"}])):
    tea, eat = read("tea", edits), read("eat", edits)
    letters = ["tea".index(letter) for letter in "eat"]
    difference = (tea["enc.norm"][letters] - eat["enc.norm"][:3]).abs().max().item()
    print(f"{title:15} tea: {tea.answer.text:5} eat: {eat.answer.text:5} max |Δ| {difference:.1e}")
