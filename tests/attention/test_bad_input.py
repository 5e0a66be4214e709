"""Errors for tensors and options that do not fit: one line with object, value and fix."""

import subprocess
import sys
import tempfile

import pytest
import torch
from torch import Tensor

from regard import Ragged, attend, prefix, window
from regard.attention import BACKENDS, Attention
from regard.attention.scores import Additive, ScaledDot
from regard.errors import RegardError, ShapeError, UnknownName
from regard.positions import T5, Alibi, Distance, Shaw

BATCH, HEADS, GROUPS, QUERIES, KEYS, DIM, OUT = 2, 6, 3, 5, 7, 4, 9


def dense(*shape: int) -> Tensor:
    return torch.randn(shape)


def ragged(lengths: list[int], *shape: int) -> Ragged:
    return Ragged.of([torch.randn(length, *shape) for length in lengths])


Q, K, V = dense(2, 6, 5, 4), dense(2, 3, 7, 4), dense(2, 3, 7, 9)
RQ, RK, RV = ragged([2, 3], 6, 4), ragged([4, 1], 3, 4), ragged([4, 1], 3, 9)

CASES = {
    "widths": (
        (Q, dense(2, 3, 7, 8), V),
        "queries have dim 4 but keys have dim 8; project both to one dim first",
    ),
    "groups": (
        (Q, dense(2, 4, 7, 4), dense(2, 4, 7, 9)),
        "6 query heads cannot share 4 key heads; heads must be a multiple of kv_heads",
    ),
    "more-groups-than-heads": (
        (dense(2, 3, 5, 4), dense(2, 6, 7, 4), dense(2, 6, 7, 9)),
        "3 query heads cannot share 6 key heads; heads must be a multiple of kv_heads",
    ),
    "no-groups": (
        (Q, dense(2, 0, 7, 4), dense(2, 0, 7, 9)),
        "6 query heads cannot share 0 key heads; heads must be a multiple of kv_heads",
    ),
    "values-in-other-groups": (
        (Q, K, dense(2, 6, 7, 9)),
        "keys have 3 heads but values have 6; give both the same number",
    ),
    "a-value-missing": (
        (Q, K, dense(2, 3, 6, 9)),
        "each key needs one value; got 7 keys and 6 values",
    ),
    "batch": (
        (Q, dense(4, 3, 7, 4), dense(4, 3, 7, 9)),
        "queries have 2 sequences, keys 4, values 4; they must have the same number",
    ),
    "batch-of-values": (
        (Q, K, dense(1, 3, 7, 9)),
        "queries have 2 sequences, keys 2, values 1; they must have the same number",
    ),
    "mixed": (
        (Q, RK, RV),
        "queries, keys and values must be all dense or all ragged; got dense, ragged, ragged",
    ),
    "mixed-values": (
        (RQ, RK, V),
        "queries, keys and values must be all dense or all ragged; got ragged, ragged, dense",
    ),
    "dense-axes": (
        (dense(2, 5, 4), K, V),
        "dense sequences must be (batch, head, time, dim); got a tensor of shape (2, 5, 4)",
    ),
    "ragged-axes": (
        (ragged([2, 3], 4), RK, RV),
        "ragged sequences must be (token, head, dim); got a tensor of shape (5, 4)",
    ),
    "ragged-batch": (
        (RQ, ragged([5], 3, 4), ragged([5], 3, 9)),
        "queries have 2 sequences, keys 1, values 1; they must have the same number",
    ),
    "ragged-cut": (
        (RQ, RK, ragged([2, 3], 3, 9)),
        "keys and values must have the same sequences; their offsets differ",
    ),
    "ragged-widths": (
        (ragged([2, 3], 6, 5), RK, RV),
        "queries have dim 5 but keys have dim 4; project both to one dim first",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_shape_mismatches_are_named(case: str, backend: str):
    inputs, message = CASES[case]
    with pytest.raises(ShapeError) as caught:
        attend(*inputs, backend=backend)
    assert str(caught.value) == message


def test_intermediates_check_shapes_like_attend():
    with pytest.raises(ShapeError, match=r"^each key needs one value; got 7 keys and 6 values$"):
        Attention(ScaledDot(6, 4)).intermediates(Q, K, dense(2, 3, 6, 9))


def test_matching_shapes_are_accepted():
    assert attend(Q, K, V).shape == (BATCH, HEADS, QUERIES, OUT)
    assert attend(RQ, RK, RV).values.shape == (5, HEADS, OUT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "scaled_dot"}, "unknown score 'scaled_dot'; did you mean 'scaled-dot'?"),
        (
            {"score": "bilinear"},
            "unknown score 'bilinear'; choose from 'additive', 'cosine', 'dot', 'gaussian', "
            "'general', 'scaled-dot'",
        ),
        ({"normaliser": "sofmax"}, "unknown normaliser 'sofmax'; did you mean 'softmax'?"),
        ({"normaliser": "entmax15"}, "unknown normaliser 'entmax15'; did you mean 'entmax'?"),
        ({"backend": "spda"}, "unknown backend 'spda'; did you mean 'sdpa'?"),
    ],
)
def test_unknown_part_suggests_the_nearest(options: dict[str, str], message: str):
    with pytest.raises(UnknownName) as caught:
        attend(Q, K, V, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize("width", [0, -3])
def test_window_must_be_at_least_one(width: int):
    with pytest.raises(RegardError) as caught:
        window(width)
    assert str(caught.value) == f"window width must be at least 1 (1 = only itself); got {width}"


@pytest.mark.parametrize("length", [-1, torch.tensor([2, -1])], ids=str)
def test_negative_prefix_is_an_error(length: int | Tensor):
    with pytest.raises(RegardError) as caught:
        prefix(length)
    assert str(caught.value) == f"prefix length must be at least 0; got {length}"


def test_prefix_lengths_must_match_the_batch():
    with pytest.raises(RegardError) as caught:
        attend(Q, K, V, mask=prefix(torch.tensor([1, 2, 3])))
    assert str(caught.value) == "prefix has 3 lengths for a batch of 2; give one per sequence"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"score": ScaledDot(6, 9)},
            "ScaledDot was built for 6 heads of 9; got queries of 6 heads of 4",
        ),
        (
            {"score": ScaledDot(5, 4)},
            "ScaledDot was built for 5 heads of 4; got queries of 6 heads of 4",
        ),
        (
            {"score": Additive(1, 4)},
            "Additive was built for 1 heads of 4; got queries of 6 heads of 4",
        ),
        ({"bias": Alibi(3)}, "the bias Alibi is for 3 heads, the score for 6"),
        ({"bias": Distance(8, 4)}, "the bias Distance is for 8 heads, the score for 6"),
        ({"bias": T5(2)}, "the bias T5 is for 2 heads, the score for 6"),
        ({"bias": Shaw(8)}, "Shaw was built for dim 8; got queries of dim 4"),
    ],
)
def test_part_built_for_other_sizes_is_named(parts: dict[str, object], message: str):
    with pytest.raises(ShapeError) as caught:
        attend(Q, K, V, **parts)
    assert str(caught.value) == message


def test_empty_sequences_are_allowed():
    q, k, v = ragged([0, 3, 2], 6, 4), ragged([4, 0, 1], 3, 4), ragged([4, 0, 1], 3, 9)
    out = attend(q, k, v)
    assert [len(row) for row in out] == [0, 3, 2]
    assert out.unbind()[1].eq(0).all()
    assert out.unbind()[2].abs().sum() > 0
    nobody = attend(ragged([0, 0], 6, 4), ragged([0, 0], 3, 4), ragged([0, 0], 3, 9))
    assert nobody.values.shape == (0, 6, 9)


def errors_of(calls: list[str], inputs: object = None) -> list[str]:
    """The error of each call, in a process of its own: here the type checker would raise first."""
    script = (
        "import sys, torch; from regard.attention import attend, prefix, window\n"
        "from regard.errors import RegardError\n"
        "inputs = torch.load(sys.argv[1], weights_only=True)\n"
        "for call in sys.argv[2:]:\n"
        "    try: eval(call)\n"
        "    except RegardError as error: print(error)\n"
        "    else: print('no error')"
    )
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(inputs, file.name)
        command = [sys.executable, "-c", script, file.name, *calls]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_mask_of_another_type_is_an_error():
    calls = [f"attend(inputs, inputs, inputs, mask={mask})" for mask in ("'causal'", "inputs > 0")]
    found = errors_of(calls, dense(1, 2, 3, 4))
    for error, shown in zip(found, ("'causal'", "a tensor of shape (1, 2, 3, 4)"), strict=True):
        assert error.startswith(
            f"mask must be a Mask such as causal or window(8), joined by & and |; got {shown}"
        )


TENSORS = {
    "integers": (
        (Q.long(), K.long(), V.long()),
        "attention computes in floating point; got queries of int64; convert them, for example "
        "with .float()",
    ),
    "integer-values": (
        (Q, K, V.int()),
        "attention computes in floating point; got values of int32; convert them, for example "
        "with .float()",
    ),
    "booleans": (
        (Q > 0, K, V),
        "attention computes in floating point; got queries of bool; convert them, for example "
        "with .float()",
    ),
    "complex": (
        (Q, K + 0j, V),
        "attention computes in floating point; got keys of complex64; convert them, for example "
        "with .float()",
    ),
    "mixed": (
        (Q, K.double(), V),
        "queries, keys and values must have one dtype; got float32, float64, float32; convert "
        "them to one",
    ),
    "half-values": (
        (Q, K, V.bfloat16()),
        "queries, keys and values must have one dtype; got float32, float32, bfloat16; convert "
        "them to one",
    ),
    "devices": (
        (Q, K.to("meta"), V),
        "queries, keys and values must be on one device; got cpu, meta, cpu; move them to one",
    ),
    "sparse": (
        (Q, K, V.to_sparse()),
        "attention needs plain tensors; got sparse values (torch.sparse_coo); call .to_dense() "
        "first",
    ),
    "dim-0": (
        (dense(2, 6, 5, 0), dense(2, 3, 7, 0), V),
        "queries have dim 0; give vectors of at least one number",
    ),
    "dim-0-values": (
        (Q, K, dense(2, 3, 7, 0)),
        "values have dim 0; give vectors of at least one number",
    ),
    "no-heads": (
        (dense(2, 0, 5, 4), dense(2, 3, 7, 4), V),
        "queries have 0 heads; give at least one",
    ),
}


def test_unsuitable_tensors_are_named():
    backends = ["auto", *BACKENDS]
    calls = [
        f"attend(*inputs[{i}], backend={backend!r})"
        for backend in backends
        for i in range(len(TENSORS))
    ]
    found = errors_of(calls, [inputs for inputs, _ in TENSORS.values()])
    assert found == [message for _, message in TENSORS.values()] * len(backends)


def test_masks_take_whole_numbers():
    wanted = {
        "window(1.5)": "window width must be a whole number; got 1.5",
        "window(True)": "window width must be a whole number; got True",
        "window('3')": "window width must be a whole number; got '3'",
        "prefix(1.5)": "prefix length must be whole numbers; got 1.5",
        "prefix(torch.ones(2))": "prefix length must be whole numbers; got tensor([1., 1.])",
    }
    assert errors_of(list(wanted)) == list(wanted.values())
