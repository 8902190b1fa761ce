"""The corrected dataset: every pixel accounted for, in each format, and nothing written when the source has changed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from audit_folder import AFFINE, make_audit, write_audit, write_dataset, write_volumes
from PIL import Image
from review_server import run_command

from jcas.data import open_dataset
from jcas.review.audit import Audit, read_audit
from jcas.review.coco import run_lengths
from jcas.review.decisions import Decisions, open_decisions
from jcas.review.export import export_review

SPLITS = {"a": "train", "b": "train", "c": "val", "d": "test"}


def pixels(path: Path) -> np.ndarray:
    return np.array(Image.open(path))


def decode(segmentation: dict) -> np.ndarray:
    """COCO's run lengths by the definition: walk down the columns, flipping at each count."""
    height, width = segmentation["size"]
    mask = np.zeros((height, width), bool)
    position, inside = 0, False
    for length in segmentation["counts"]:
        for place in range(position, position + length):
            mask[place % height, place // height] = inside
        position, inside = position + length, not inside
    assert position == height * width
    return mask


class Reviewed:
    """An audit of four images, each decided in its own way, and the masks that must come out."""

    def __init__(self, root: Path, names: tuple[str, ...] = ("a", "b", "c", "d")) -> None:
        self.folder = make_audit(root, names, splits=dict(zip(names, SPLITS.values(), strict=True)))
        self.data = root / "data"
        self.names = names
        audit = read_audit(self.folder)
        decisions = open_decisions(audit, write=True)
        images = {image.id: image for image in audit.images}
        first, second, third, fourth = (images[name] for name in names)
        decisions.decide(first, "accept", revision=0)
        decisions.decide(second, "accept_region", revision=0, region=1)
        decisions.paint(second, np.full((2, 3), 2, np.uint8), top=3, left=50, revision=1)
        decisions.paint(second, np.full((1, 2), 255, np.uint8), top=20, left=0, revision=2)
        decisions.decide(third, "reject", revision=0)
        decisions.decide(fourth, "untrusted", revision=0)
        decisions.close()
        self.given = {name: pixels(self.folder / "given" / f"{name}.png") for name in names}
        repaired = {name: pixels(self.folder / "repaired" / f"{name}.png") for name in names}
        painted = np.where(
            pixels(self.folder / "regions" / f"{names[1]}.png") == 1, repaired[names[1]], self.given[names[1]]
        )
        painted[3:5, 50:53] = 2
        painted[20, 0:2] = 255
        self.expected = {names[0]: repaired[names[0]], names[1]: painted, names[2]: self.given[names[2]]}


@pytest.fixture
def reviewed(tmp_path: Path) -> Reviewed:
    return Reviewed(tmp_path)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_folder_holds_exactly_the_decided_pixels_and_opens_as_a_dataset(reviewed: Reviewed, tmp_path: Path):
    out = tmp_path / "out"
    done = export_review(reviewed.folder, out)
    assert sorted(path.name for path in (out / "masks").iterdir()) == ["a.png", "b.png", "c.png"]
    for name, expected in reviewed.expected.items():
        assert np.array_equal(pixels(out / "masks" / f"{name}.png"), expected)
        assert (out / "images" / f"{name}.png").read_bytes() == (reviewed.data / "images" / f"{name}.png").read_bytes()
    dataset = open_dataset(out)
    assert dataset.labels.names == ("background", "organ", "lesion") and dataset.name == "phantom"
    assert {record.id: record.split for record in dataset.records} == {"a": "train", "b": "train", "c": "val"}
    assert np.array_equal(dataset.load(dataset.records[1], clean=False).noisy.numpy(), reviewed.expected["b"])
    assert (done.images, done.changed_images, done.left_out, done.unreviewed) == (3, 2, 1, 1)


def test_changes_name_every_changed_pixel_once(reviewed: Reviewed, tmp_path: Path):
    done = export_review(reviewed.folder, tmp_path / "out")
    table = rows(tmp_path / "out" / "changes.csv")
    names = {0: "background", 1: "organ", 2: "lesion", 255: "ignored"}
    expected = {}
    for image, mask in reviewed.expected.items():
        for was in names:
            for becomes in names:
                count = int(((reviewed.given[image] == was) & (mask == becomes)).sum())
                if was != becomes and count:
                    expected[image, names[was], names[becomes]] = count
    assert {(row["image"], row["from"], row["to"]): int(row["pixels"]) for row in table} == expected
    assert done.changed_pixels == sum(expected.values()) > 0


def test_decisions_are_listed(reviewed: Reviewed, tmp_path: Path):
    export_review(reviewed.folder, tmp_path / "out")
    images = json.loads((tmp_path / "out" / "decisions.json").read_text())["images"]
    assert {name: image["status"] for name, image in images.items()} == {
        "a": "accepted",
        "b": "partly",
        "c": "rejected",
        "d": "untrusted",
    }
    assert images["b"] == {
        "status": "partly", "verdict": None, "regions": {"1": "accept"}, "untrusted": False, "painted": True,
        "revision": 3,
    }  # fmt: skip


def test_coco_decodes_to_the_same_masks(reviewed: Reviewed, tmp_path: Path):
    out = tmp_path / "out"
    export_review(reviewed.folder, out, format="coco")
    assert sorted(path.name for path in (out / "annotations").iterdir()) == ["train.json", "val.json"]
    seen = set()
    for split in ("train", "val"):
        content = json.loads((out / "annotations" / f"{split}.json").read_text())
        labels = {category["name"]: category["id"] for category in content["categories"]}
        assert labels == {"organ": 1, "lesion": 2, "ignored": 255}
        assert len({a["id"] for a in content["annotations"]}) == len(content["annotations"])
        for image in content["images"]:
            name = image["file_name"].removesuffix(".png")
            assert (out / "images" / image["file_name"]).is_file()
            mask = np.zeros((image["height"], image["width"]), np.uint8)
            for annotation in (a for a in content["annotations"] if a["image_id"] == image["id"]):
                inside = decode(annotation["segmentation"])
                assert annotation["area"] == inside.sum() and not mask[inside].any()
                left, top, width, height = annotation["bbox"]
                assert inside[top : top + height, left : left + width].sum() == inside.sum()
                assert inside[top].any() and inside[:, left].any()
                assert inside[top + height - 1].any() and inside[:, left + width - 1].any()
                mask[inside] = annotation["category_id"]
            assert np.array_equal(mask, reviewed.expected[name])
            seen.add(name)
    assert seen == set(reviewed.expected)


def test_run_lengths_match_the_example_of_the_format():
    mask = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 0]], bool)  # down the columns: 011 001 110
    assert run_lengths(mask) == [1, 2, 2, 3, 1]
    assert run_lengths(np.ones((2, 2), bool)) == [0, 4]
    assert run_lengths(np.zeros((2, 3), bool)) == [6]


# --- volumes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[tuple[Audit, Decisions]]:
    truths = write_volumes(tmp_path / "data")
    audit = read_audit(write_audit(tmp_path / "data", tmp_path / "audit", truths))
    decisions = open_decisions(audit, write=True)
    yield audit, decisions
    decisions.close()


@pytest.mark.parametrize("format", ["nifti", "folder"])
def test_volumes_come_back_with_their_affine(volumes: tuple[Audit, Decisions], tmp_path: Path, format: str):
    audit, decisions = volumes
    images = {image.id: image for image in audit.images}
    decisions.decide(images["case1#001"], "accept", revision=0)
    decisions.decide(images["case1#002"], "untrusted", revision=0)
    done = export_review(audit.root, tmp_path / "out", format=format)  # type: ignore[arg-type]
    source = np.asarray(nib.load(tmp_path / "data" / "masks" / "case1.nii.gz").dataobj)
    volume = nib.load(tmp_path / "out" / "masks" / "case1.nii.gz")
    stored = np.asarray(volume.dataobj)
    assert np.allclose(volume.affine, AFFINE) and stored.dtype == np.uint8
    assert np.array_equal(stored[:, :, 0], source[:, :, 0])
    assert np.array_equal(stored[:, :, 1], pixels(audit.root / "repaired" / "case1#001.png"))
    assert (stored[:, :, 2] == 255).all()  # an untrusted slice keeps its place, but teaches nothing
    other = np.asarray(nib.load(tmp_path / "out" / "masks" / "case2.nii.gz").dataobj)
    assert np.array_equal(other, np.asarray(nib.load(tmp_path / "data" / "masks" / "case2.nii.gz").dataobj))
    records = open_dataset(tmp_path / "out").records
    assert {record.group: record.split for record in records} == {"p1": "train", "p2": "test"}
    assert done.left_out == 1 and {row["image"] for row in rows(tmp_path / "out" / "changes.csv")} == {"case1#001"}


def test_volume_without_a_trusted_slice_is_left_out(volumes: tuple[Audit, Decisions], tmp_path: Path):
    audit, decisions = volumes
    for image in audit.images:
        if image.id.startswith("case2"):
            decisions.decide(image, "untrusted", revision=0)
    export_review(audit.root, tmp_path / "out", format="nifti")
    assert [path.name for path in (tmp_path / "out" / "masks").iterdir()] == ["case1.nii.gz"]


def test_slices_become_pictures_in_coco(volumes: tuple[Audit, Decisions], tmp_path: Path):
    audit, decisions = volumes
    image = next(image for image in audit.images if image.id == "case2#000")
    decisions.decide(image, "untrusted", revision=0)
    export_review(audit.root, tmp_path / "out", format="coco")
    names = {path.name for path in (tmp_path / "out" / "images").iterdir()}
    assert names == {"case1#000.png", "case1#001.png", "case1#002.png", "case2#001.png", "case2#002.png"}


# --- what the source must still be ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["folder", "coco"])
@pytest.mark.parametrize("name", ["a", "c", "d"])  # accepted, rejected, and one that would be left out
def test_changed_source_mask_stops_the_export_and_loses_nothing(
    reviewed: Reviewed, tmp_path: Path, name: str, format: str
):
    mask = reviewed.data / "masks" / f"{name}.png"
    changed = pixels(mask)
    changed[30, 30] ^= 1
    Image.fromarray(changed).save(mask)
    log = (reviewed.folder / "decisions.jsonl").read_bytes()
    code, written = run_command("review", str(reviewed.folder), "--export", str(tmp_path / "out"), "--format", format)
    assert code == 2 and "has changed since the audit" in written and written.count("\n") == 1
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))
    assert (reviewed.folder / "decisions.jsonl").read_bytes() == log


def test_bad_exports_are_one_line_and_exit_2(reviewed: Reviewed, tmp_path: Path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("precious")
    audit = str(reviewed.folder)
    calls = {
        ("--export", str(full)): "not an empty folder",
        ("--export", str(tmp_path / "out"), "--format", "nifti"): "holds flat images",
        ("--export", str(tmp_path / "out"), "--format", "yaml"): "unknown format 'yaml'",
        ("--export", str(tmp_path / "out"), "--data", str(tmp_path / "gone")): "the audited dataset is not there",
    }
    for options, reason in calls.items():
        code, written = run_command("review", audit, *options)
        assert code == 2 and reason in written and written.count("\n") == 1, written
    assert [path.name for path in full.iterdir()] == ["mine.txt"] and not (tmp_path / "out").exists()
    (reviewed.data / "images" / "b.png").unlink()
    (reviewed.data / "masks" / "b.png").unlink()
    (reviewed.data / "split.csv").unlink()
    code, written = run_command("review", audit, "--export", str(tmp_path / "out"))
    assert code == 2 and "image 'b' of the audit is missing" in written


def test_missing_layer_and_foreign_given_mask_are_named(reviewed: Reviewed, tmp_path: Path):
    given = reviewed.folder / "given" / "a.png"
    content = given.read_bytes()
    Image.fromarray(np.zeros_like(reviewed.given["a"])).save(given)
    with pytest.raises(ValueError, match=r"a\.png: is not the mask that was audited"):
        export_review(reviewed.folder, tmp_path / "out")
    given.write_bytes(content)
    (reviewed.folder / "repaired" / "a.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.png: missing from the audit folder"):
        export_review(reviewed.folder, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_images_outside_the_audit_pass_through(tmp_path: Path):
    truths = write_dataset(tmp_path / "data", ("a", "b", "c"))
    audited = {name: truth for name, truth in truths.items() if name != "b"}
    audit = read_audit(write_audit(tmp_path / "data", tmp_path / "audit", audited))
    decisions = open_decisions(audit, write=True)
    for image in audit.images:
        decisions.decide(image, "accept", revision=0)
    decisions.close()
    assert export_review(audit.root, tmp_path / "out").images == 3
    assert np.array_equal(pixels(tmp_path / "out/masks/b.png"), pixels(tmp_path / "data/masks/b.png"))
    assert np.array_equal(pixels(tmp_path / "out/masks/c.png"), pixels(tmp_path / "audit/repaired/c.png"))


def test_everything_untrusted_is_refused(tmp_path: Path):
    audit = read_audit(make_audit(tmp_path, ["a"]))
    decisions = open_decisions(audit, write=True)
    decisions.decide(audit.images[0], "untrusted", revision=0)
    decisions.close()
    with pytest.raises(ValueError, match="every image is marked untrusted"):
        export_review(audit.root, tmp_path / "out")


def test_names_with_quotes_and_unicode_are_exported(tmp_path: Path):
    names = ('it\'s "so"', "<b>bold&#1", "图像 🫀", "100%2e")
    reviewed = Reviewed(tmp_path, names)
    export_review(reviewed.folder, tmp_path / "out")
    for name, expected in reviewed.expected.items():
        assert np.array_equal(pixels(tmp_path / "out" / "masks" / f"{name}.png"), expected)
    assert {row["name"] for row in rows(tmp_path / "out" / "split.csv")} == set(names[:3])


def test_dataset_of_other_values_and_true_masks_is_carried_along(tmp_path: Path):
    data = tmp_path / "data"
    truths = write_dataset(data, ("a", "b"))
    described = json.loads((data / "dataset.yaml").read_text()) | {"values": [0, 100, 200]}
    (data / "dataset.yaml").write_text(json.dumps(described))
    (data / "clean").mkdir()
    lookup = np.arange(256, dtype=np.uint8)
    lookup[[1, 2]] = 100, 200
    for name, truth in truths.items():
        Image.fromarray(lookup[truth]).save(data / "clean" / f"{name}.png")
        Image.fromarray(lookup[pixels(data / "masks" / f"{name}.png")]).save(data / "masks" / f"{name}.png")
    audit = read_audit(write_audit(data, tmp_path / "audit", truths))
    decisions = open_decisions(audit, write=True)
    decisions.decide(audit.images[0], "accept", revision=0)
    decisions.close()
    export_review(audit.root, tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    sample = dataset.load(dataset.records[0], clean=True)
    assert np.array_equal(sample.noisy.numpy(), truths["a"]) and np.array_equal(sample.clean.numpy(), truths["a"])


def test_changed_masks_lose_their_weights_and_others_keep_them(tmp_path: Path):
    truths = write_dataset(tmp_path / "data", ("a", "b", "c"))
    (tmp_path / "data" / "weights").mkdir()
    for number, name in enumerate(truths):
        Image.fromarray(np.full((40, 60), 50 * number + 20, np.uint8)).save(tmp_path / "data/weights" / f"{name}.png")
    audit = read_audit(write_audit(tmp_path / "data", tmp_path / "audit", truths))
    decisions = open_decisions(audit, write=True)
    images = {image.id: image for image in audit.images}
    decisions.decide(images["a"], "accept", revision=0)
    decisions.decide(images["b"], "reject", revision=0)
    decisions.close()
    export_review(audit.root, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out" / "weights").iterdir()) == ["b.png", "c.png"]
    dataset = open_dataset(tmp_path / "out")
    weights = {record.id: dataset.load(record, clean=False).weight for record in dataset.records}
    assert weights["a"] is None
    assert float(weights["b"].max()) == pytest.approx(70 / 255) and float(weights["c"].max()) == pytest.approx(
        120 / 255
    )
