"""Masks and heads: find the previous-token head and ablate it."""

import regard

pipeline = regard.load("spelling")
search = pipeline.search(beam=1)
trace = regard.record(pipeline, "chef", search=search)

allowed = trace["dec.0.self.masked"][0] > float("-inf")
print(allowed.int())


def share(name: str, head: int) -> float:
    """The mean weight on the previous token."""
    return float(trace[f"{name}.weights"][head].diagonal(-1).mean())


heads = [(one.name, h) for one in trace.attentions if one.kind == "encoder" for h in range(4)]
name, head = max(heads, key=lambda one: share(*one))
print(f"{name} head {head} puts {share(name, head):.2f} on the previous letter")

edit = {"kind": "ablate", "attention": name, "head": head}
ablated = regard.record(pipeline, "chef", search=search, edits=[edit])
forced = regard.record(pipeline, "chef", trace.answer.text, edits=[edit])
print(f"all heads:        {trace.answer.text}  {float(trace['out.total']):.3f}")
print(f"without the head: {ablated.answer.text}  {float(forced['out.total']):.3f}")
