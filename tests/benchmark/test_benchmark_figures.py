"""Pictures of a benchmark of any number of methods: everything can be told apart, and nothing is cut off."""

import io
import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jcas.benchmark.figures import curves_figure, line_styles
from jcas.methods import method_names

ABLATIONS = [name for name in method_names() if name.startswith("jcas_no_")]


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
