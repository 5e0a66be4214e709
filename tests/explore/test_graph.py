"""The graph of a model contains every tensor and every parameter."""


def test_graph_covers_tensors_and_parameters(client, ids, pipeline, described, family):
    found = client.get(f"/api/models/{ids[family]}/graph").json()
    blocks, model = found["blocks"], pipeline.model
    names = [name for block in blocks for name in block["names"]]
    assert sorted(names) == sorted(tensor["name"] for tensor in described["tensors"])
    shapes = {one["name"]: one["shape"] for block in blocks for one in block["parameters"]}
    assert shapes == {name: list(value.shape) for name, value in model.named_parameters()}
    assert found["parameters"] == sum(value.numel() for value in model.parameters())
    assert sum(block["count"] for block in blocks) == found["parameters"]  # nothing is tied here
    assert found["settings"]["width"] == model.settings.width
    for block in blocks:
        assert block["thumbnail"] in block["names"]


def test_blocks_have_a_stack_a_layer_and_a_kind(client, ids):
    found = client.get(f"/api/models/{ids['transformer']}/graph").json()
    kinds = {
        block["id"]: (block["stack"], block["layer"], block["kind"]) for block in found["blocks"]
    }
    assert kinds["dec.1.cross"] == ("decoder", 1, "attention")
    assert kinds["enc.0.ffn"] == ("encoder", 0, "ffn")
    assert kinds["src"] == ("source", None, "embedding")
