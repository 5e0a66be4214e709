"""Position encodings side by side, against NumPy in float64."""

import numpy as np
import pytest

from regard.config import TransformerSettings
from regard.explore.model_store import ModelStore
from tests.explore.helpers import SOURCE, make_client, save_bundle

COUNT = len(SOURCE) + 1


def encodings(client, model: str, side: str = "source"):
    trace = client.post("/api/trace", json={"model": model, "source": SOURCE}).json()
    response = client.get(f"/api/trace/{trace['id']}/positions", params={"side": side})
    assert response.status_code == 200, response.text
    found = response.json()
    return found, {one["name"]: one for one in found["encodings"]}


@pytest.fixture(scope="module")
def found(client, ids):
    return encodings(client, ids["transformer"])


def sinusoidal(width: int) -> np.ndarray:
    places, dims = np.arange(COUNT)[:, None], np.arange(width)
    angles = places / 10000 ** (2 * (dims // 2) / width)
    return np.where(dims % 2, np.cos(angles), np.sin(angles))


def test_sizes_are_those_of_the_model(found):
    sizes, _ = found
    assert (sizes["width"], sizes["heads"], sizes["dim"], sizes["count"]) == (16, 2, 8, COUNT)


def test_sinusoidal_values_and_scores(found):
    one = found[1]["sinusoidal"]
    expected = sinusoidal(16)
    assert np.allclose(one["values"], expected, atol=1e-6)
    assert np.allclose(one["scores"][0], expected @ expected.T / 4, atol=1e-6)


def test_rotary_scores_depend_on_the_distance_alone(found):
    one = found[1]["rotary"]
    ahead = np.subtract.outer(np.arange(COUNT), np.arange(COUNT))
    frequencies = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    expected = 2 * np.cos(ahead[..., None] * frequencies).sum(-1) / np.sqrt(8)
    assert np.allclose(one["scores"][0], expected, atol=1e-5)
    assert np.allclose(one["frequencies"], frequencies)
    assert (one["own"], one["learned"]) == (True, False)


def test_alibi_is_a_penalty_by_distance_and_head(found):
    one = found[1]["alibi"]
    far = np.abs(np.subtract.outer(np.arange(COUNT), np.arange(COUNT)))
    for head, slope in enumerate((2**-4, 2**-8)):
        assert np.allclose(one["scores"][head], -slope * far)
    assert one["slopes"] == [2**-4, 2**-8]


def test_relative_positions_read_the_same_number_at_one_distance(found):
    one = found[1]["distance"]
    index = np.array(one["index"])
    ahead = np.subtract.outer(np.arange(COUNT), np.arange(COUNT)).T  # key − query
    assert (index - 128 == ahead).all()
    assert np.abs(one["scores"]).max() == 0  # a new model starts at 0
    assert one["learned"]


def test_the_models_own_learned_numbers_are_shown(tmp_path):
    settings = TransformerSettings(
        width=16, heads=2, encoder_layers=1, decoder_layers=1, ffn_width=12, position="learned"
    )
    models = ModelStore.open([save_bundle(tmp_path / "learned", settings=settings)])
    model = next(iter(models))
    _, found = encodings(make_client(models), model.id)
    table = next(
        value
        for name, value in model.pipeline.model.state_dict().items()
        if "source" in name and "position" in name
    )
    assert np.allclose(found["learned"]["values"], table[:COUNT].numpy())
    assert found["learned"]["own"]
    assert not found["sinusoidal"]["own"]


def test_a_recurrent_model_has_one_head(client, ids):
    sizes, found = encodings(client, ids["recurrent"], "target")
    assert (sizes["heads"], sizes["dim"]) == (1, 10)
    assert not any(one.get("own") for one in found.values())
