import pytest
import torch
from reference import apply_map, dense_cosine, dense_maps, dense_refine

from jcas.core import Affinity, refine

SPATIAL = [(5, 7), (3, 4, 5), (11,)]


def features_with_gaps(*spatial: int, dims: int = 6) -> torch.Tensor:
    features = torch.randn(2, dims, *spatial, dtype=torch.float64)
    features.view(2, dims, -1)[1, :, 3] = -1.0  # no positive feature at all
    features.view(2, dims, -1)[0, :, 0] = 0.0
    return features


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("operation", ["propagate", "reverse", "reverse_cosine", "refine", "refine_cosine"])
def test_operators_match_the_dense_maps_in_value_and_gradient(spatial, operation):
    features = features_with_gaps(*spatial).requires_grad_()
    values = torch.randn(2, 3, *spatial, dtype=torch.float64, requires_grad=True)
    cosine = operation.endswith("cosine")

    def fast():
        affinity = Affinity(features)
        if operation == "propagate":
            return affinity.propagate(values)
        if operation.startswith("reverse"):
            return affinity.propagate_reverse(values, cosine=cosine)
        return refine(values, affinity, cosine_reverse=cosine)

    def slow():
        if operation == "propagate":
            return apply_map(dense_maps(features, cosine_reverse=False)[0], values)
        if operation.startswith("reverse"):
            return apply_map(dense_maps(features, cosine_reverse=cosine)[1], values)
        return dense_refine(values, features, cosine_reverse=cosine)

    direction = torch.randn_like(values)
    results = [(form(), *torch.autograd.grad((form() * direction).sum(), (features, values))) for form in (fast, slow)]
    for left, right in zip(*results, strict=True):
        assert torch.allclose(left, right, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("cosine", [False, True])
def test_operators_pass_gradcheck(cosine):
    features = torch.rand(2, 3, 2, 3, dtype=torch.float64) + 0.1
    values = torch.randn(2, 2, 2, 3, dtype=torch.float64)

    def refined(features, values):
        return refine(values, Affinity(features), cosine_reverse=cosine)

    assert torch.autograd.gradcheck(refined, (features.requires_grad_(), values.requires_grad_()))


def test_operators_have_right_second_derivatives():
    features = torch.rand(1, 2, 3, dtype=torch.float64) + 0.1
    values = torch.randn(1, 2, 3, dtype=torch.float64)

    def refined(features, values):
        return refine(values, Affinity(features))

    assert torch.autograd.gradgradcheck(refined, (features.requires_grad_(), values.requires_grad_()))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_very_small_and_very_large_features_have_the_same_angles(scale):
    features = torch.rand(1, 4, 6)
    assert torch.allclose(Affinity(features * scale).to_dense(), Affinity(features).to_dense(), atol=1e-6)


def test_to_dense_is_the_cosine_map():
    features = features_with_gaps(4, 5)
    assert torch.allclose(Affinity(features).to_dense(), dense_cosine(features), atol=1e-12)


def test_pixels_without_features_get_zeros_not_nan():
    affinity = Affinity(torch.zeros(1, 4, 3, 3))
    values = torch.randn(1, 2, 3, 3)
    for result in (
        affinity.propagate(values),
        affinity.propagate_reverse(values),
        affinity.propagate_reverse(values, cosine=True),
    ):
        assert torch.equal(result, torch.zeros_like(values))
    assert torch.equal(refine(values, affinity), values)


def test_a_single_pixel_and_parallel_features_have_no_unlike_pixel():
    single = Affinity(torch.ones(1, 2, 1))
    assert single.propagate_reverse(torch.ones(1, 1, 1)).item() == 0
    parallel = Affinity(torch.full((1, 8, 64, 64), 0.3))
    assert torch.equal(parallel.propagate_reverse(torch.rand(1, 2, 64, 64), cosine=True), torch.zeros(1, 2, 64, 64))


@pytest.mark.parametrize("cosine", [False, True])
def test_a_constant_prediction_stays_constant(cosine):
    coarse = torch.tensor([1.5, -0.5, 0.2], dtype=torch.float64).view(1, 3, 1, 1).expand(1, 3, 5, 6)
    refined = refine(coarse, Affinity(torch.rand(1, 4, 5, 6, dtype=torch.float64)), cosine_reverse=cosine)
    assert torch.allclose(refined, coarse, atol=1e-12)


def test_ablating_both_directions_gives_the_coarse_prediction_back():
    coarse, affinity = torch.randn(2, 3, 4, 4), Affinity(torch.rand(2, 5, 4, 4))
    assert torch.equal(refine(coarse, affinity, intra=False, inter=False), coarse)
    both = refine(coarse, affinity) - coarse
    intra = refine(coarse, affinity, inter=False) - coarse
    inter = refine(coarse, affinity, intra=False) - coarse
    assert torch.allclose(both, intra + inter, atol=1e-6)
    assert intra.abs().max() > 0.01 and inter.abs().max() > 0.001


def test_refinement_pulls_a_stray_pixel_to_its_like():
    features = torch.zeros(1, 2, 10)
    features[0, 0, :5], features[0, 1, 5:] = 1.0, 1.0
    coarse = torch.tensor([[2.0, 2.0, 2.0, 2.0, -1.0, -2.0, -2.0, -2.0, -2.0, 1.0]]).view(1, 1, 10)
    logits = torch.cat([coarse, -coarse], dim=1)
    labels = refine(logits, Affinity(features), cosine_reverse=True).argmax(1)
    assert labels.tolist() == [[0] * 5 + [1] * 5]


def test_half_precision_features_are_taken_in_float32():
    features = torch.rand(1, 8, 6, 6)
    for dtype in (torch.float16, torch.bfloat16):
        affinity = Affinity(features.to(dtype))
        assert affinity.unit.dtype == torch.float32
        assert affinity.propagate(torch.rand(1, 2, 6, 6).to(dtype)).dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Affinity(features).propagate(features[:, :2])
    assert torch.equal(inside, Affinity(features).propagate(features[:, :2]))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.ones(2, 3), r"features must have shape \(batch, channels, \*spatial\).*got \(2, 3\)"),
        (torch.ones(1, 2, 3, dtype=torch.long), "features must be floating point, got dtype torch.int64"),
        (torch.tensor([[[1.0, float("nan")]]]), r"features holds nan at index \(0, 0, 1\)"),
        (torch.tensor([[[1.0], [float("inf")]]]), r"features holds inf at index \(0, 1, 0\)"),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises(ValueError, match=message):
        Affinity(features)


def test_values_of_another_shape_are_named():
    affinity = Affinity(torch.rand(2, 3, 4, 5))
    with pytest.raises(ValueError, match=r"values must have shape \(batch, channels, 4, 5\).*got \(2, 3, 5, 4\)"):
        affinity.propagate(torch.rand(2, 3, 5, 4))
    with pytest.raises(ValueError, match="values must be floating point"):
        affinity.propagate(torch.ones(2, 3, 4, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="values hold 1 images, the features 2"):
        refine(torch.rand(1, 3, 4, 5), affinity)
