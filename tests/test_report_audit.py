"""The report on an audit, against audit folders that the tests write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_report import Page

from jcas.report import build_audit_report, is_audit
from jcas.report.audit import SMALLEST, WRONGNESS, read_audit_folder
from jcas.report.flow import flow_chart
from jcas.schema import LabelSpace

sys.path.insert(0, str(Path(__file__).parent / "review"))

from audit_folder import CLASSES, make_audit

HOSTILE = "a\"<img src=x>'é✓"
PIXELS = [[900.0, 10.0, 0.0], [20.0, 200.0, 5.0], [0.0, 5.0, 60.0]]  # true x given


def finish(folder: Path) -> Path:
    """Add what `jcas audit` writes beyond what the review needs."""
    about = json.loads((folder / "audit.json").read_text())
    joint = np.array(PIXELS)
    about |= {
        "splits": ["train"], "method": "volmin", "seed": 7, "seconds": 12.0, "commit": "3d5a0427c0ffee",
        "config": {"method": "volmin", "epochs": 3}, "expected_pixels": PIXELS,
        "class_transition": (joint / joint.sum(1, keepdims=True)).tolist(),
        "affinity_transition": [[0.95, 0.05], [0.02, 0.98]], "prior": [0.75, 0.2, 0.05],
        "class_noise_rate": {"value": 0.0333, "low": 0.021, "high": 0.046},
        "affinity_noise_rate": {"value": 0.05, "low": 0.04, "high": 0.07},
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps(about))
    (folder / "predicted").mkdir(exist_ok=True)
    for path in (folder / "repaired").iterdir():
        (folder / "predicted" / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(make_audit(tmp_path_factory.mktemp("audit"), ("a", "b", HOSTILE, "d")))


@pytest.fixture(scope="module")
def page(audit: Path) -> Page:
    return Page(build_audit_report(audit, audit.parent / "report.html"))


def test_every_image_is_in_the_gallery_worst_first_with_all_layers(page: Page, audit: Path):
    entries = page.gallery["entries"]
    rows = [json.loads(line) for line in (audit / "images.jsonl").read_text().splitlines()]
    ranked = sorted(rows, key=lambda row: (row["quality"], -row["expected_wrong"], row["id"]))
    assert [entry["id"] for entry in entries] == [row["id"] for row in ranked]
    assert page.gallery["together"] == ["given", "predicted", "repaired", "wrongness"]
    for entry in entries:
        assert set(entry["runs"][0]) == {"given", "predicted", "repaired", "wrongness"}
    views = [attrs["value"] for tag, attrs in page.tags if attrs.get("name") == "view"]
    assert views == ["all", "image", "given", "predicted", "repaired", "wrongness"]


def test_pictures_show_the_layers_of_the_audit_folder(page: Page, audit: Path):
    entry = page.gallery["entries"][0]
    for layer in ("given", "repaired"):
        ids = np.array(Image.open(audit / layer / f"{entry['id']}.png")).astype(int)
        ids[ids == 255] = len(CLASSES)
        assert (np.asarray(page.picture(entry["runs"][0][layer])) == ids).all()
    steps = np.asarray(page.picture(entry["runs"][0]["wrongness"]))
    given, heat = (np.array(Image.open(audit / layer / f"{entry['id']}.png")) for layer in ("given", "wrongness"))
    limits = [least for least, _, _ in WRONGNESS]
    assert (steps == np.where(given == 255, 0, np.searchsorted(limits, heat / 255, side="right"))).all()
    assert steps.max() == 4  # 220 / 255 = 0.86 lies in 75-90 %


def test_findings_stand_with_their_image_and_can_be_filtered(page: Page, audit: Path):
    entries = page.gallery["entries"]
    assert {kind for entry in entries for kind in entry["kinds"]} >= {"missing", "superfluous", "wrong class"}
    assert any(entry["labels"] == list(CLASSES) for entry in entries)
    told = [about for entry in entries for kind, about in entry["findings"] if kind == "superfluous"]
    assert told and all(about.startswith("lesion → background, ") and about.endswith("%") for about in told)
    options = page.text
    assert "mismatched pair" in options and "wrong class" in options


def test_numbers_of_the_audit_are_shown(page: Page):
    assert "3.33 %" in page.text and "2.10 to 4.60 %" in page.text and "4.00 to 7.00 %" in page.text
    assert ["organ", "0.089", "0.889", "0.022"] in page.rows  # 20, 200 and 5 of 225
    assert ["same", "0.020", "0.980"] in page.rows
    # organ: 200 right of 215 labelled and 225 true; 200 / 240 in common; most often background
    assert ["organ", "83.33", "215", "6.98", "11.11", "background"] in page.rows
    facts = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert facts["Seed"] == "7" and facts["Commit"] == "3d5a0427c0" and facts["Method"] == "volmin"
    assert "epochs: 3" in page.text and "Read with care" in page.text


def test_page_needs_no_network_and_shows_strange_names_as_text(page: Page):
    links = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("href", "src", "srcset")]
    assert links and all(link.startswith("#") for link in links)
    assert any(entry["id"] == HOSTILE for entry in page.gallery["entries"])
    assert not any(tag == "img" for tag, _ in page.tags)


def test_flow_is_as_thick_as_its_pixels_and_absent_without_errors():
    labels = LabelSpace(CLASSES)
    assert flow_chart(np.diag([5.0, 5.0, 5.0]).tolist(), labels) is None
    drawn = flow_chart(PIXELS, labels)
    assert drawn is not None and drawn.count('class="band"') == 4
    assert "background labelled as organ: 25.0%" in drawn and "organ labelled as background: 50.0%" in drawn
    strange = flow_chart(PIXELS, LabelSpace(("background", "<b>organ</b> of a long name", "lesion")))
    assert strange is not None and "<b>" not in strange


def test_audit_without_the_newer_fields_still_makes_a_page(tmp_path: Path):
    folder = make_audit(tmp_path)
    page = Page(build_audit_report(folder, tmp_path / "report.html"))
    assert len(page.gallery["entries"]) == 4 and page.gallery["together"] == ["given", "repaired", "wrongness"]


def test_many_images_stay_small(tmp_path: Path):
    folder = make_audit(tmp_path, ("a",), size=(300, 200))
    line = json.loads((folder / "images.jsonl").read_text())
    names = [f"image{number:04d}" for number in range(900)]
    (folder / "images.jsonl").write_text("".join(json.dumps({**line, "id": name}) + "\n" for name in names))
    for layer in ("images", "given", "repaired", "weights"):
        for name in names:
            (folder / layer / f"{name}.png").symlink_to(folder / layer / "a.png")
    out = build_audit_report(folder, tmp_path / "report.html")
    page = Page(out)
    assert len(page.gallery["entries"]) == 900
    assert max(page.picture(page.gallery["entries"][0]["image"]).size) == SMALLEST
    assert out.stat().st_size < 900 * 1_000  # equal pictures are stored once: this is what an entry itself costs


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("audit.json", "{", "not valid JSON"),
        ("audit.json", "{}", "lacks format"),
        ("audit.json", '{"format": "9", "dataset": 0, "classes": 0, "colours": 0, "ignore": 1, "images": 1}', "'9'"),
        ("images.jsonl", "{}", "line 1"),
        ("images.jsonl", '{"id": "../x", "quality": 1, "expected_wrong": 0}', "names no file"),
        ("issues.csv", "image,region\na,x", "line 2"),
    ],
)  # fmt: skip
def test_damaged_audit_is_one_line(tmp_path: Path, file: str, content: str, message: str):
    folder = make_audit(tmp_path, ("a",))
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_audit_folder(folder)
    assert "\n" not in str(caught.value)


def test_lost_picture_is_named_by_the_command_in_one_line(tmp_path: Path):
    folder = make_audit(tmp_path, ("a",))
    (folder / "given" / "a.png").unlink()
    done = subprocess.run([sys.executable, "-m", "jcas", "report", str(folder)], capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and "given/a.png" in done.stderr
    assert not (folder / "report.html").exists()


def test_command_writes_the_page_into_the_audit_folder(audit: Path):
    assert is_audit(audit)
    done = subprocess.run([sys.executable, "-m", "jcas", "report", str(audit)], capture_output=True, text=True)
    assert done.returncode == 0 and Page(audit / "report.html").gallery["entries"]
