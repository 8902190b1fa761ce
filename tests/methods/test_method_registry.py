"""Names: variants are options, a new method is one file and one line, a network of its own replaces the encoder."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from jcas.benchmark import UPPER_BOUND
from jcas.cli import app
from jcas.config import make_config
from jcas.methods import METHODS, VARIANTS, Method, method_class, method_names, method_options, option_defaults
from jcas.run import build_method

MINE = '''
from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import focal_loss


class Mine(HeadLossMethod):
    """A method of somebody else."""

    paper = "Somebody, somewhere"

    def __init__(self, model, num_classes, *, gamma=2.0):
        super().__init__(model, num_classes)
        self.gamma = gamma

    def head_loss(self, logits, batch):
        return focal_loss(logits.softmax(1), batch.noisy, gamma=self.gamma, weight=batch.weight)
'''


def built(method: str, **values):
    config = make_config({"data": "somewhere", "method": method, "epochs": 10, **values}).resolved()
    return config, build_method(config, num_classes=3, channels=1)


def test_a_variant_is_its_method_with_options():
    config, method = built("dar")
    assert type(method) is METHODS["jcas"] and config.method == "dar"
    assert config.options == {
        "warmup": 3,
        "latest_pairs": 7,
        "correct_class": False,
        "correct_affinity": False,
        "appearance": False,
        "separate_refinement": False,
        "dar_of_flips": True,
    }
    assert method.intra and method.inter and not method.correct_class and not method.correct_affinity


def test_given_options_win_over_the_variant_and_that_over_the_schedule():
    options = method_options("calc", {"inter": True, "warmup": 7}, epochs=50)
    assert options == {"warmup": 7, "latest_pairs": 35, "intra": False, "inter": True, "appearance": False}


def test_every_variant_names_a_method_and_options_that_it_has():
    for name, (method, options) in VARIANTS.items():
        assert name not in METHODS and method in METHODS
        method_options(name, options, epochs=1)
    assert method_names() == [*METHODS, *VARIANTS]


def test_the_papers_rows_and_ablations_switch_what_they_say():
    switches = ("intra", "inter", "correct_class", "correct_affinity")
    expected = {
        "jcas": (True, True, True, True),
        "affinity": (False, False, False, False),
        "dar": (True, True, False, False),
        "calc": (False, False, True, True),
        "jcas_no_dar": (False, False, True, True),
        "jcas_with_dar": (True, True, True, True),
        "jcas_no_intra": (False, True, True, True),
        "jcas_no_inter": (True, False, True, True),
        "jcas_no_class_correction": (True, True, False, True),
        "jcas_no_affinity_correction": (True, True, True, False),
        "jcas_no_consistency": (True, True, True, True),
        "jcas_no_appearance": (True, True, True, True),
        "jcas_no_separate_refinement": (True, True, True, True),
        "jcas_with_balanced_pairs": (True, True, True, True),
        "jcas_no_affinity": (False, False, True, True),
        "jcas_no_neighbours": (True, True, True, True),
        "jcas_no_robust_warmup": (True, True, True, True),
        "jcas_paper": (True, True, True, True),
        "jcas_released": (True, True, True, True),
        "jcas_released_64": (True, True, True, True),
    }
    without_appearance = {
        "affinity",
        "dar",
        "calc",
        "jcas_no_appearance",
        "jcas_paper",
        "jcas_released",
        "jcas_released_64",
    }
    halves = {"dar", "jcas_with_dar", "jcas_no_intra", "jcas_no_inter", "jcas_no_separate_refinement"}
    with_dar = {*halves, "jcas_paper", "jcas_released", "jcas_released_64"}
    for name, values in expected.items():
        _, method = built(name)
        assert tuple(getattr(method, switch) for switch in switches) == values, name
        assert bool(method.consistency_weight) == (name != "jcas_no_consistency")
        assert method.recipe.appearance == (name not in without_appearance), name
        assert method.recipe.dar_of_flips == (name in with_dar), name
        assert method.recipe.balanced_pairs == (name == "jcas_with_balanced_pairs"), name
        for part in ("neighbours", "robust_warmup"):
            without = (f"jcas_no_{part}", "jcas_paper", "jcas_released", "jcas_released_64")
            assert getattr(method.recipe, part) == (name not in without), name


@pytest.mark.parametrize(
    ("method", "encoder", "network"),
    [
        ("raunet", "tiny", "raunet:tiny"),
        ("lwanet", "tiny", "lwanet:tiny"),
        ("css", "tiny", "ocrnet:tiny"),
        ("raunet", "resnet34", "raunet"),
        ("lwanet", "lite0", "lwanet"),
        ("css", "resnet101", "ocrnet"),
        ("raunet", "raunet", "raunet"),
        ("css", "ocrnet", "ocrnet"),
        ("css", "ocrnet:tiny", "ocrnet:tiny"),
        ("css", "ocrnet:lite0", "ocrnet:lite0"),
        ("gce", "raunet", "raunet"),
        ("gce", "tiny", "tiny"),
    ],
)
def test_a_network_of_its_own_stands_in_for_the_encoder(method, encoder, network):
    config = make_config({"data": "x", "method": method, "encoder": encoder, "pretrained": False}).resolved()
    assert config.encoder == network
    assert config.resolved().encoder == network, "what a run folder holds is resolved again when the run goes on"


@pytest.mark.parametrize("name", [name for name, cls in METHODS.items() if cls.network])
def test_beside_the_tiny_encoder_a_network_of_its_own_is_small_and_else_the_papers(name):
    _, small = built(name)
    _, full = built(name, encoder="resnet18")
    assert type(small.model) is type(full.model)
    sizes = [sum(p.numel() for p in method.model.parameters()) for method in (small, full)]
    assert sizes[0] < 1.5e6 < 2e6 < sizes[1]


def test_a_small_network_has_no_weights_to_start_from():
    with pytest.raises(ValueError, match="raunet:tiny has no pretrained weights, got pretrained=True; raunet has"):
        built("raunet", pretrained=True)


def test_pairs_need_a_network_with_features():
    with pytest.raises(ValueError, match="raunet has no pixel features"):
        built("jcas", encoder="raunet")


def test_adding_a_method_is_a_file_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine.py").write_text(MINE)
    spec = importlib.util.spec_from_file_location("mine", tmp_path / "mine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "mine", module.Mine)  # the line
    config, method = built("mine", options={"gamma": 3.0})
    assert method.gamma == 3.0 and config.options == {"gamma": 3.0}
    assert method.predict(torch.rand(1, 1, 32, 32)).shape == (1, 3, 32, 32)
    listed = CliRunner().invoke(app, ["methods"])
    assert "mine" in listed.output and "Somebody, somewhere" in listed.output
    with pytest.raises(ValueError, match="method 'mine' has no option 'gama', did you mean 'gamma'"):
        built("mine", options={"gama": 3.0})


def test_the_list_of_methods_shows_every_name_with_its_paper():
    listed = CliRunner().invoke(app, ["methods"], env={"COLUMNS": "120"})
    assert listed.exit_code == 0
    for name in method_names():
        assert name in listed.output and method_class(name).paper in listed.output
    assert UPPER_BOUND in listed.output, "a name for benchmark --methods, too"


@pytest.mark.parametrize("name", ["jcas", "jcas_paper", "mtcl", "baseline", UPPER_BOUND])
def test_a_name_shows_its_card_with_all_options_and_defaults(name):
    shown = CliRunner().invoke(app, ["methods", name], env={"COLUMNS": "80"})
    assert shown.exit_code == 0 and "Differs from" in shown.output and "L = " in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    method = "baseline" if name == UPPER_BOUND else name
    defaults = {**option_defaults(method), **method_options(method, {}, epochs=50)}
    rows = dict(re.findall(r"│ (\w+) +│ (.*?) +│", shown.output))
    assert list(rows) == list(defaults)
    for option, value in defaults.items():
        if value is not None:
            assert rows[option].startswith(json.dumps(value)), option
    if "preset" in rows:  # what it leaves open is the preset's
        assert rows["learned_matrices"] == json.dumps(name == "jcas_paper") and rows["training_grid"] == "none"
    if "warmup" in rows:
        assert rows["warmup"].endswith("in a run of 50 epochs")


def test_a_card_says_what_a_variant_and_the_upper_bound_are():
    for name, words in (("jcas_paper", 'jcas with preset="paper"'), (UPPER_BOUND, "--method baseline --labels clean")):
        assert words in CliRunner().invoke(app, ["methods", name], env={"COLUMNS": "120"}).output
    unknown = CliRunner().invoke(app, ["methods", "jcsa"])
    assert isinstance(unknown.exception, ValueError) and "did you mean 'jcas'?" in str(unknown.exception)


def test_a_method_that_overrides_predict_is_refused():
    with pytest.raises(TypeError, match="Mine overrides predict, which a run never calls; override segment or finish"):

        class Mine(Method):
            def predict(self, images):
                return images
