"""Pictures of a benchmark of any number of methods: everything can be told apart, and nothing is cut off."""

import io
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from jcas.benchmark.figures import curves_figure, line_styles
from jcas.benchmark.grid import Cell, Grid
from jcas.benchmark.noisy_sets import NoisySet
from jcas.benchmark.qualitative import qualitative_figure
from jcas.data import open_dataset, write_mask
from jcas.data.synthetic import write_dataset
from jcas.methods import method_names

ABLATIONS = [name for name in method_names() if name.startswith(("jcas_no_", "jcas_with_"))]


def summary_of(methods: list[str], *, noises: tuple[str, ...] = ("ellipse",), mean: float = 50.0) -> dict:
    """Two watched epochs of each method and of the upper bound, with a deviation of 10."""
    lines = [
        {"method": method, "epochs": [1, 2], "mean": [mean, mean], "std": [10.0, 10.0]}
        for method in ("upper_bound", *methods)
    ]
    rows = [{"method": method} for method in methods]
    groups = [{"noise": noise, "methods": rows, "curves": lines} for noise in noises]
    return {"settings": {"watch": "test"}, "datasets": [{"dataset": "cells", "noises": groups}]}


def drawn(summary: dict) -> Figure:
    figure = curves_figure(summary)
    assert figure is not None
    figure.savefig(io.BytesIO(), format="png")  # places everything
    return figure


def panels(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.get_axes() if axis.get_visible()]


# --- curves -----------------------------------------------------------------------------------------------------------


def test_no_two_methods_look_alike():
    others = [f"of_a_user_{number}" for number in range(100)]
    styles = line_styles(others)
    assert {"upper_bound", *method_names(), *others} == styles.keys()
    looks = {(style["color"], style["ls"], style["marker"]) for style in styles.values()}
    assert len(looks) == len(styles)


def test_a_method_looks_the_same_whoever_stands_beside_it():
    assert line_styles(["volmin"])["volmin"] == line_styles(["of_a_user", *method_names()])["volmin"]


@pytest.mark.parametrize("noises", [("ellipse",), ("ellipse", "polygon", "symmetric:rate=0.5", "none")])
def test_legends_of_all_methods_stand_inside_the_picture_and_beside_the_curves(noises):
    long = "a_method_whose_name_is_much_longer_than_all_others_of_the_benchmark"
    figure = drawn(summary_of([*method_names(), long], noises=noises))
    legends = [legend for part in figure.subfigs for legend in part.legends]
    named = [text.get_text() for legend in legends for text in legend.get_texts()]
    assert len(legends) == 2 and len(named) == len(method_names()) + 2 + 3  # upper bound, baseline and jcas in both
    inside = figure.bbox
    taken = [axis.get_tightbbox() for axis in panels(figure)]
    for legend in legends:
        box = legend.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in taken)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(taken, 2))
    assert not legends[0].get_window_extent().overlaps(legends[1].get_window_extent())


def test_ablations_stand_apart_beside_what_they_are_compared_with():
    styles = line_styles([])
    methods, variants = panels(drawn(summary_of(["baseline", "volmin", "jcas", *ABLATIONS])))

    def colours(axis: Axes) -> list[str]:
        return sorted(line.get_color() for line in axis.get_lines())

    references = ["upper_bound", "baseline", "jcas"]
    assert colours(methods) == sorted(styles[name]["color"] for name in (*references, "volmin"))
    assert colours(variants) == sorted(styles[name]["color"] for name in (*references, *ABLATIONS))
    assert len(panels(drawn(summary_of(["baseline", "jcas"])))) == 1
    assert len(panels(drawn(summary_of(["baseline", "jcas", *ABLATIONS])))) == 1, "nothing to compare them with"
    mixed = summary_of(["baseline", "jcas"], noises=("polygon",))
    mixed["datasets"] += summary_of(["baseline", "jcas", *ABLATIONS], noises=("ellipse",))["datasets"]
    titles = [axis.get_title() for axis in panels(drawn(mixed))]
    assert titles == ["cells: polygon", "cells: ellipse"], "every noise is drawn"


@pytest.mark.parametrize(("mean", "low", "high"), [(5.0, 0.0, 15.0), (95.0, 85.0, 100.0), (50.0, 40.0, 60.0)])
def test_deviations_stay_between_0_and_100(mean, low, high):
    (axis,) = panels(drawn(summary_of(["baseline"], mean=mean)))
    edges = np.concatenate([path.vertices[:, 1] for band in axis.collections for path in band.get_paths()])
    assert (edges.min(), edges.max()) == (low, high)


def test_curves_without_a_row_in_the_table_are_not_drawn():
    summary = summary_of(["baseline", "volmin"])
    del summary["datasets"][0]["noises"][0]["methods"][1]
    (axis,) = panels(drawn(summary))
    assert len(axis.get_lines()) == 2  # upper bound and baseline
    summary["datasets"][0]["noises"][0]["curves"] = []
    assert curves_figure(summary) is None


def test_labels_as_they_are_have_a_readable_title():
    titles = [axis.get_title() for axis in panels(drawn(summary_of(["baseline"], noises=("none", "ellipse"))))]
    assert titles == ["labels as given", "ellipse"]


# --- predictions ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "truth", count=24, size=(64, 64), seed=1, domain="source")


def finished_grid(out: Path, truth: Path, methods: list[str], noises: tuple[str, ...]) -> Grid:
    """All methods predict the truth, but ``volmin`` sees nothing."""
    dataset = open_dataset(truth)
    sets = [NoisySet(dataset.name, noise, str(truth), noise, {}) for noise in noises]
    names = [("clean", "upper_bound"), *itertools.product(noises, methods)]
    cells = [Cell(f"{noise}__{method}", dataset.name, noise, method, 0) for noise, method in names]
    for cell in cells:
        masks = out / "cells" / cell.name / "masks"
        masks.mkdir(parents=True)
        (masks.parent / "results.json").write_text("{}")
        for record in dataset.split("test"):
            right = dataset.load(record, clean=True).noisy
            write_mask(masks / f"{record.id}.png", torch.zeros_like(right) if cell.method == "volmin" else right)
    return Grid(out, {}, tuple(sets), tuple(cells))


def test_thirty_methods_under_three_noises_fit_on_a_page(truth, tmp_path):
    noises, methods = ("ellipse", "polygon", "none"), method_names()[:30]
    figure = qualitative_figure(finished_grid(tmp_path, truth, methods, noises))
    figure.savefig(io.BytesIO(), format="png")
    width, height = figure.bbox.size
    assert width <= 1600 and height <= 2000
    shown = Counter(text.get_text().replace("\n", " ") for text in figure.texts)
    assert all(shown[name] == 1 for name in ("image", "truth", "upper bound", "ellipse", "polygon", "labels as given"))
    assert all(shown[name.replace("_", " ")] == 3 for name in methods), "once under each noise"
    assert shown["noisy label"] == 2 and shown["label"] == 1
    assert len(figure.images) == 2 * (3 + 3 * (1 + len(methods))), "two test images of everything"

    boxes = [text.get_window_extent() for text in figure.texts] + [one.get_window_extent() for one in figure.legends]
    boxes += [Bbox.from_bounds(one.ox, one.oy, *one.get_array().shape[1::-1]) for one in figure.images]
    assert all(0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_tiles_show_what_their_method_predicts(truth, tmp_path):
    figure = qualitative_figure(finished_grid(tmp_path, truth, ["baseline", "volmin"], ("none",)))
    images = len(figure.images) // 6
    titles = ["image", "truth", "upper bound", "label", "baseline", "volmin"]
    tiles = {title: figure.images[place * images].get_array() for place, title in enumerate(titles)}
    assert (tiles["truth"] == tiles["label"]).all() and (tiles["truth"] == tiles["baseline"]).all()
    assert np.ptp(tiles["volmin"], axis=2).max() == 0, "grey: nothing was found"
    assert np.ptp(tiles["truth"], axis=2).max() > 50 and np.ptp(tiles["image"], axis=2).max() > 0


def test_nothing_finished_is_no_picture(truth, tmp_path):
    grid = finished_grid(tmp_path, truth, ["baseline"], ("none",))
    (grid.folder(grid.cells[1]) / "results.json").unlink()
    assert qualitative_figure(grid) is None
