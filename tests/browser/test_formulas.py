"""The formulas and texts of a page are those of its model."""

import pytest

MATH = """name => {
  const math = document.querySelector(`[data-view="${name}"] math`);
  return math ? math.textContent.replace(/\\s/g, "") : null;
}"""


def formula(page, view: str) -> str | None:
    return page.evaluate(MATH, view)


def test_transformer_formulas_name_rotation_and_bias(visit, ids, pipelines):
    page = visit().open(f"#/attention?m={ids['spelling']}&s=attention&a=dec.0.self")
    names = dict(pipelines["spelling"].model.named_parameters())
    has_bias = "decoder.0.self_attention.queries.bias" in names
    assert formula(page, "lab.q") == ("qi=xiWQ+bQ" if has_bias else "qi=xiWQ")
    assert formula(page, "lab.dots") == "qi′·kj′"  # the vectors are rotated (RoPE) first
    assert formula(page, "lab.scores") == "sij=qi′·kj′d"
    out_bias = "decoder.0.self_attention.out.bias" in names
    assert formula(page, "lab.out").endswith("WO+bO" if out_bias else "WO")


def test_additive_attention_has_its_own_formulas(visit, ids):
    page = visit().open(f"#/attention?m={ids['spelling-recurrent']}&s=attention")
    assert formula(page, "lab.query") == "qi=Wsi−1"
    assert formula(page, "lab.key") == "kj=Uhj+b"
    assert formula(page, "lab.energy") == "eij=v·tanh(Wsi−1+Uhj+b)"
    assert formula(page, "lab.weights") == "wij=eeij∑keeik"
    assert formula(page, "lab.context") == "ci=∑jwijhj"


@pytest.mark.parametrize("name", ["attention", "ablation"])
def test_recurrent_texts_do_not_describe_a_transformer(visit, ids, name):
    page = visit().open(f"#/{name}?m={ids['spelling-recurrent']}&s=attention")
    text = page.locator("main").inner_text()
    for word in ("W_O", "Each token is projected", "heads are concatenated"):
        assert word not in text
    assert "decoder state" in text


def test_gates_show_their_matrices(visit, ids):
    page = visit().open(f"#/residual?m={ids['spelling-recurrent']}&s=attention&o.side=target")
    shown = page.evaluate(
        "[...document.querySelectorAll('main math')].map(m => m.textContent.replace(/\\s/g, ''))"
    )
    assert "z=σ(Wzx+bz+Uzh+cz)" in shown
    assert "r=σ(Wrx+br+Urh+cr)" in shown
    assert "n=tanh(Wnx+bn+r⊙(Unh+cn))" in shown
    assert "h′=(1−z)⊙n+z⊙h" in shown
