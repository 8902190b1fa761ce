"""Co-teaching and tri-network: which pixels are chosen, and who teaches whom."""

import pytest
import torch

from jcas.methods.base import another_draw
from jcas.methods.coteaching import CoTeaching
from jcas.methods.selection import easiest
from jcas.methods.trinet import TriNet
from jcas.models import build_model
from jcas.schema import Batch


def test_rare_classes_keep_their_share():
    noisy = torch.zeros(1, 10, 10, dtype=torch.long)
    noisy[0, 0, :5] = 1
    losses = torch.rand(1, 10, 10, generator=torch.Generator().manual_seed(0)) + 10 * noisy
    chosen = easiest(losses, noisy, noisy >= 0, keep=(0.6, 0.6))
    assert chosen[noisy == 1].sum().item() == 3 and chosen[noisy == 0].sum().item() == 57
    assert losses[chosen & (noisy == 0)].max() <= losses[~chosen & (noisy == 0)].min()


def test_each_class_keeps_its_own_share():
    noisy = torch.tensor([[[0] * 10 + [1] * 10]])
    losses = torch.arange(20.0).view(1, 1, 20)
    assert easiest(losses, noisy, noisy >= 0, keep=(0.9, 0.2)).flatten().nonzero().flatten().tolist() == [
        *range(9),
        10,
        11,
    ]


@pytest.mark.parametrize("rate", [-0.1, 1.0, [0.1, 0.2], [0.1, 0.2, 1.0]])
def test_rates_beyond_all_labels_or_for_other_classes_are_refused(rate):
    with pytest.raises(ValueError, match="forget_rate must lie in"):
        CoTeaching(build_model("tiny", num_classes=3, channels=1), 3, forget_rate=rate)


def test_only_candidates_are_chosen_and_none_is_fine():
    noisy = torch.tensor([[[0, 0, 1, 255]]])
    candidates = torch.tensor([[[True, False, False, False]]])
    assert easiest(torch.zeros(1, 1, 4), noisy, candidates, keep=(1.0, 1.0)).tolist() == candidates.tolist()
    assert not easiest(torch.zeros(1, 1, 4), noisy, candidates & False, keep=(0.5, 0.5)).any()


def test_another_draw_has_other_weights_of_the_same_values():
    torch.manual_seed(0)
    model = build_model("tiny", num_classes=3, channels=1)
    first, again, other = (another_draw(model, seed=seed) for seed in (1, 1, 2))
    for name, weight in model.named_parameters():
        drawn = first.get_parameter(name)
        assert torch.equal(drawn, again.get_parameter(name))
        assert torch.equal(drawn.flatten().sort().values, weight.flatten().sort().values)
        if weight.ndim > 1:
            assert not torch.equal(drawn, weight) and not torch.equal(drawn, other.get_parameter(name))


def test_pretrained_encoders_are_not_shuffled():
    model = build_model("tiny", num_classes=3, channels=1)
    model.pretrained = True
    drawn = another_draw(model, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(model.encoder.parameters(), drawn.encoder.parameters(), strict=True))
    assert not torch.equal(model.classifier.weight, drawn.classifier.weight)


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        image=torch.rand(2, 1, 32, 40, generator=generator),
        noisy=torch.randint(0, 3, (2, 32, 40), generator=generator),
        ids=("a", "b"),
    )


@pytest.mark.parametrize(("cls", "teachers"), [(CoTeaching, [(1,), (0,)]), (TriNet, [(1, 2), (0, 2), (0, 1)])])
def test_each_network_learns_what_the_others_find_easy(cls, teachers):
    torch.manual_seed(0)
    method = cls(build_model("tiny", num_classes=3, channels=1), 3, forget_rate=[0.5, 0.1, 0.9], ramp=1)
    method.start_epoch(1)
    images = batch()
    losses = []
    for network in method.networks():
        logits = torch.nn.functional.interpolate(network(images.image).logits, (32, 40), mode="bilinear")
        losses.append(torch.nn.functional.cross_entropy(logits, images.noisy, reduction="none"))
    chosen = [easiest(loss, images.noisy, images.noisy >= 0, keep=(0.5, 0.9, 0.1)) for loss in losses]
    expected = []
    for student, its_teachers in enumerate(teachers):
        agreed = torch.stack([chosen[teacher] for teacher in its_teachers]).all(0)
        expected.append(losses[student][agreed].mean())
    assert method(images)["class_loss"].item() == pytest.approx(torch.stack(expected).mean().item(), abs=1e-5)


@pytest.mark.parametrize(("cls", "count"), [(CoTeaching, 2), (TriNet, 3)])
def test_all_networks_are_trained_at_the_rates_of_one(cls, count):
    model = build_model("tiny", num_classes=3, channels=1)
    method = cls(model, 3)
    groups = method.parameter_groups()
    of_encoder, of_all = len(list(model.encoder.parameters())), len(list(model.parameters()))
    assert len(groups["encoder"]) == count * of_encoder
    assert len(groups["heads"]) == count * (of_all - of_encoder) and not groups["matrices"]
