"""The table of a weight: the part of a parameter around it, against the model's own numbers."""

import pytest

from tests.explore.helpers import error_message


def ask(client, described, name: str, index: str):
    path = f"/api/trace/{described['id']}/weight-table"
    return client.get(path, params={"name": name, "index": index})


def test_a_weight_is_shown_in_its_table(client, described, pipeline):
    for name, parameter in pipeline.model.named_parameters():
        weight = parameter.detach()
        index = tuple(size // 2 for size in weight.shape)
        found = ask(client, described, name, ",".join(map(str, index))).json()
        assert found["shape"] == list(weight.shape)
        i, j = found["at"]
        assert found["numbers"][i][j] == pytest.approx(float(weight[index]), rel=1e-6)
        matrix = weight[index[:-2]] if weight.ndim > 1 else weight[None]
        first, second = found["first"]
        part = matrix[first : first + 21, second : second + 21]
        assert part.shape == (min(21, matrix.shape[0]), min(21, matrix.shape[1]))
        assert found["numbers"] == [pytest.approx(row, rel=1e-6) for row in part.tolist()]


def test_rows_of_an_embedding_table_have_their_tokens(client, described, pipeline):
    parameters = dict(pipeline.model.named_parameters())
    name = next(key for key, one in parameters.items() if one is pipeline.model.source.table)
    found = ask(client, described, name, "4,2").json()
    labels = [pipeline.bundle.source.label(id) for id in range(len(parameters[name]))]
    assert found["row_labels"] == labels[found["first"][0] :][: len(found["numbers"])]
    assert "src.embed" in found["used_by"]
    other = next(key for key in parameters if key.endswith("bias") or "bias_" in key)
    assert ask(client, described, other, "0").json()["row_labels"] is None


def test_weights_that_do_not_exist_are_refused(client, described, pipeline):
    name = next(name for name, _ in pipeline.model.named_parameters())
    message = error_message(ask(client, described, name, "99999,0"), 422, "out-of-range")
    assert "there is no weight at (99999, 0)" in message
    message = error_message(ask(client, described, "nothing", "0"), 404, "unknown-parameter")
    assert message.startswith("unknown parameter 'nothing'")
