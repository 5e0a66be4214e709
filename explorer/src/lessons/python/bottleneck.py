"""Point Bahdanau's attention by hand: the decoder says what it is made to look at."""

import regard

pipeline = regard.load("spelling-recurrent")
search = pipeline.search(beam=1)
trace = regard.record(pipeline, "knight", search=search)
letters = trace["attn.weights"].shape[-1]
print(f"free:              {trace.answer.text}")


def pointed(step: int, letter: int) -> str:
    """The output if all weight lies on one letter at one step."""
    weights = [float(k == letter) for k in range(letters)]
    edit = {"kind": "row", "attention": "attn", "head": 0, "query": step, "weights": weights}
    return regard.record(pipeline, "knight", search=search, edits=[edit]).answer.text


print(f"step 0 looks at k: {pointed(0, 0)}")
print(f"step 3 looks at n: {pointed(3, 1)}")
