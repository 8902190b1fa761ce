"""One dataset with planted faults, trained on and audited, then through the report and the review."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jcas.audit import audit
from jcas.audit.rules import Place, absent_classes
from jcas.config import make_config
from jcas.data import open_dataset
from jcas.engine import train
from jcas.report import build_audit_report
from jcas.review.audit import read_audit
from jcas.review.decisions import open_decisions
from jcas.review.export import export_review

HEADER = "image,region,kind,class_given,class_suggested,probability,top,left,bottom,right,pixels"
SIDE = 64
FAULTS = {
    "p00": "empty_mask",
    "p01": "stray_component",
    "p02": "hole",
    "p03": "mismatched_pair",
    "p04": "mismatched_pair",
    "p05": "duplicate_conflict",
    "p05_copy": "duplicate_conflict",
    "film2": "class_absent",
}


def disc(row: float, column: float, radius: float) -> np.ndarray:
    rows, columns = np.ogrid[:SIDE, :SIDE]
    return (rows - row) ** 2 + (columns - column) ** 2 <= radius**2


def scene(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A red disc and a blue one in opposite quarters, over grey patches that no other scene has."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((SIDE, SIDE), np.uint8)
    corner = np.array([(18, 18), (18, 46), (46, 46), (46, 18)][seed % 4])
    for label, centre in ((1, corner), (2, SIDE - corner)):
        row, column = centre + rng.integers(-3, 4, 2)
        mask[disc(row, column, rng.integers(10, 13))] = label
    grey = np.kron(rng.uniform(20, 80, (8, 8)), np.ones((8, 8)))[..., None] + rng.normal(0, 4, (SIDE, SIDE, 3))
    colour = np.array([(0, 0, 0), (150, 20, 20), (20, 20, 150)])[mask]
    return (grey + colour).clip(0, 255).astype(np.uint8), mask


def planted() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    scenes = {f"p{number:02d}": scene(number) for number in range(20)}
    scenes |= {f"film{number}": scene(96 + 4 * number) for number in range(1, 4)}
    scenes["p05_copy"] = scenes["p05"][0], scenes["p05"][1].copy()
    masks = {name: mask for name, (_, mask) in scenes.items()}
    masks["p00"][:] = 0
    masks["p01"][2:4, 30:32] = 1
    row, column = (int(place.mean()) for place in np.nonzero(masks["p02"] == 1))
    masks["p02"][row - 2 : row + 2, column - 2 : column + 2] = 0
    masks["p03"], masks["p04"] = masks["p04"], masks["p03"]
    masks["p05_copy"][masks["p05_copy"] == 2] = 0
    masks["film2"][masks["film2"] == 2] = 0
    return {name: (image, masks[name]) for name, (image, _) in scenes.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "planted"
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    rows = ["name,split,group"]
    for name, (image, mask) in planted().items():
        Image.fromarray(image).save(folder / "images" / f"{name}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{name}.png")
        split = {"p18": "val", "p19": "test"}.get(name, "train")
        rows.append(f"{name},{split},{'film' if name.startswith('film') else name}")
    (folder / "split.csv").write_text("\n".join(rows) + "\n")
    (folder / "dataset.yaml").write_text("classes: [background, red, blue]\n")
    return folder


@pytest.fixture(scope="module")
def audited(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    values = {"data": str(data), "method": "baseline", "epochs": 6, "batch_size": 4, "threads": 1, "watch": "none"}
    train(make_config(values), folder / "run", progress=False)
    audit(folder / "run", folder / "audit", confidence=0.6, progress=False)
    return folder / "audit"


def labels(folder: Path, name: str) -> np.ndarray:
    return np.array(Image.open(folder / f"{name}.png"))


def test_every_planted_fault_is_found_and_no_other(audited):
    with (audited / "issues.csv").open(newline="") as file:
        found = [(row["image"], row["kind"]) for row in csv.DictReader(file)]
    assert [fault for fault in FAULTS.items() if fault not in found] == []
    assert {fault for fault in found if fault[1] in FAULTS.values()} == set(FAULTS.items())


def test_header_of_the_issues(audited):
    assert (audited / "issues.csv").read_text().splitlines()[0] == HEADER


def test_report_shows_every_image(audited, tmp_path):
    page = build_audit_report(audited, tmp_path / "report.html").read_text("utf-8")
    names = [path.stem for path in (audited / "given").iterdir()]
    assert len(names) == 23 and [name for name in names if f'"{name}"' not in page] == []


def test_accepted_repairs_are_exported_as_the_audit_wrote_them(audited, data, tmp_path):
    read = read_audit(audited)
    decisions = open_decisions(read, write=True)
    for image in read.images:
        decisions.decide(image, "accept", revision=0)
    decisions.close()
    exported = export_review(audited, tmp_path / "corrected")
    changed = 0
    for image in read.images:
        repaired = labels(audited / "repaired", image.id)
        assert (labels(tmp_path / "corrected" / "masks", image.id) == repaired).all()
        changed += int((repaired != labels(data / "masks", image.id)).sum())
    assert exported.unreviewed == exported.left_out == 0
    assert exported.changed_pixels == changed > 0
    assert len(open_dataset(tmp_path / "corrected").records) == len(read.images) + 1


def lacking(pixels: dict[int, int], *, volume: bool) -> list[int]:
    """Numbers of the slices that lack a class of both neighbours, from the pixels that each slice has of it."""
    places = {
        number: Place(
            id=f"case#{number:03d}" if volume else f"case_slice{number}",
            group="case",
            slice_index=number if volume else None,
            size=(8, 8),
            pixels=(64 - count, count),
            expected=(60.0, 4.0),
            given_hash=str(number),
        )
        for number, count in pixels.items()
    }
    found = {name for name, _ in absent_classes(list(places.values()))}
    return [number for number, place in places.items() if place.id in found]


@pytest.mark.parametrize("volume", [True, False])
@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        ({1: 9, 2: 0, 3: 9}, [2]),
        ({11: 9, 10: 0, 9: 9}, [10]),
        ({10: 9, 20: 0, 30: 9}, [20]),
        ({1: 9, 7: 0, 20: 9}, []),
        ({1: 9, 2: 0, 4: 9}, []),
        ({1: 9, 2: 0, 3: 9, 5: 0, 6: 9, 7: 0, 8: 9, 20: 0, 31: 9}, [2, 7]),
    ],
)
def test_neighbours_are_one_step_away(pixels, expected, volume):
    assert lacking(pixels, volume=volume) == expected
