"""The report against run folders that the tests write: real files, drawn with numpy."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from jcas.metrics import SegmentationScores
from jcas.report import build_report
from jcas.report.charts import Series, line_chart, nice_ticks
from jcas.report.collect import read_run
from jcas.report.page import embed_json
from jcas.report.training import run_names
from jcas.schema import LabelSpace

CLASSES = ("background", "shaft", "wrist", "clasper")
HOSTILE = '</script><script>alert("x")</script>\'&é✓'


# --- a run folder as the engine writes it ---------------------------------------------------------------------------


def draw_scene(rng: np.random.Generator, height: int = 256, width: int = 320) -> tuple[np.ndarray, np.ndarray]:
    """An instrument over tissue: an RGB picture and its true label map."""
    rows, columns = np.mgrid[:height, :width].astype(float)
    tissue = sum(
        np.sin(columns * rng.uniform(0.01, 0.05) + rows * rng.uniform(-0.05, 0.05) + rng.uniform(0, 6))
        for _ in range(5)
    )
    image = np.stack([120 + 18 * tissue, 58 + 11 * tissue, 54 + 9 * tissue], axis=-1)
    truth = np.zeros((height, width), np.uint8)
    for _ in range(rng.integers(1, 3)):
        angle = rng.uniform(-0.9, 0.9)
        tip_row, tip_column = rng.uniform(0.3, 0.7) * height, rng.uniform(0.35, 0.65) * width
        along = (columns - tip_column) * np.cos(angle) + (rows - tip_row) * np.sin(angle)
        across = (rows - tip_row) * np.cos(angle) - (columns - tip_column) * np.sin(angle)
        truth[(along > 45) & (np.abs(across) < 19)] = 1
        truth[(along > 12) & (along <= 45) & (np.abs(across) < 16)] = 2
        truth[(along > -42) & (along <= 12) & (np.abs(np.abs(across) - 7 + along / 9) < 5)] = 3
    shine = np.array([[0, 0, 0], [92, 98, 108], [156, 160, 166], [196, 198, 202]], float)
    image = np.where(truth[..., None] > 0, shine[truth] + 7 * tissue[..., None], image)
    return np.clip(image + rng.normal(0, 5, image.shape), 0, 255).astype(np.uint8), truth


def distort(truth: np.ndarray, rng: np.random.Generator, strength: float) -> np.ndarray:
    """A label map that is wrong in blobs near its borders, as real ones are."""
    height, width = truth.shape
    rows, columns = np.mgrid[:height, :width]
    wave = [rng.uniform(0.03, 0.11) for _ in range(4)]
    shift_rows = strength * (np.sin(columns * wave[0] + rng.uniform(0, 6)) + np.sin(rows * wave[1]))
    shift_columns = strength * (np.sin(rows * wave[2] + rng.uniform(0, 6)) + np.sin(columns * wave[3]))
    source_rows = np.clip(rows + shift_rows, 0, height - 1).astype(int)
    source_columns = np.clip(columns + shift_columns, 0, width - 1).astype(int)
    return truth[source_rows, source_columns]


def write_run(
    folder: Path,
    *,
    method: str = "jcas",
    noise: str | None = "ellipse",
    quality: float = 1.0,  # 0 = as bad as its labels, 1 = nearly right
    images: int = 3,
    epochs: int = 20,
    matrices: bool = True,
    ids: tuple[str, ...] = (),
    **changes: object,
) -> Path:
    """Write a run folder with scores that belong to its pictures."""
    gallery = folder / "gallery"
    gallery.mkdir(parents=True)
    labels, rng = LabelSpace(CLASSES), np.random.default_rng(5)
    scores, entries = SegmentationScores(labels), []
    for number in range(images):
        image_id = ids[number] if number < len(ids) else f"seq_{number // 4:02d}/frame{number:04d}"
        stem = f"{number:05d}"
        image, truth = draw_scene(np.random.default_rng(number))
        given = distort(truth, np.random.default_rng(1000 + number), 9.0)
        predicted = distort(truth, np.random.default_rng(2000 + number), 9.0 - 7.5 * quality)
        truth[:8] = 255
        Image.fromarray(image).save(gallery / f"{stem}_image.jpg", quality=85)
        for layer, mask in (("given", given), ("clean", truth), ("predicted", predicted)):
            Image.fromarray(mask).save(gallery / f"{stem}_{layer}.png")
        scores.update(predicted, truth, image_id)
        kinds = {"image": "jpg", "given": "png", "clean": "png", "predicted": "png"}
        files = {kind: f"{stem}_{kind}.{ending}" for kind, ending in kinds.items()}
        entries.append({"id": image_id, "split": "test", "files": files})
    for entry, row in zip(entries, scores.per_image(), strict=True):
        entry["jac"] = row["jac"]["mean"]
    (gallery / "gallery.json").write_text(json.dumps(entries), encoding="utf-8")

    table, selected = scores.compute(), max(1, int(epochs * 0.6))
    lower = {name: value - 1.7 if value else value for name, value in table["jac"].items()}
    results = {
        "version": "0.1.0", "commit": "3d5a0427c0ffee", "method": method, "noise": noise, "seed": 0,
        "dataset": "endovis18-parts", "classes": list(CLASSES), "colours": [list(c) for c in labels.colours],
        "dice": table["dice"], "jac": table["jac"], "selected_epoch": selected,
        "selection": "noisy_validation_loss",
        "last_epoch": {"epoch": epochs, "dice": table["dice"], "jac": lower},
        "seconds": 412.3 + 700 * quality, "peak_memory_mb": 812.0 + 80 * quality,
        "started": "2026-11-15T21:04:09", "truth": "clean",
        "noise_info": {"class_noise_rate": 0.0931, "affinity_noise_rate": 0.1482},
        "findings": {"labels": "drawn (roughness 0.002)", "predictions": "refined by appearance"} if matrices else {},
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results | changes), encoding="utf-8")

    final = np.full((4, 4), 0.03) + np.diag([0.88] * 4)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for epoch in range(1, epochs + 1):
            fall = math.exp(-epoch / (epochs / 4))
            loss = 0.31 + 0.9 * fall - 0.06 * quality + 0.015 * rng.normal()
            line = {
                "epoch": epoch, "train": {"loss": loss},
                "val": {"loss": loss + 0.05 + 0.002 * (epoch - selected) ** 2 / epochs},
                "looking_only": {"split": "test", "jac": table["jac"]["mean"] * (1 - fall), "dice": 70.0},
                "learning_rates": {"encoder": 1e-4}, "transition_diagonal": None, "seconds": 3.5,
            }  # fmt: skip
            if matrices:
                line["train"] |= {"class_loss": loss * 0.7, "affinity_loss": loss * 0.3, "volume": -0.4 + fall / 3}
                line["transition_diagonal"] = [0.74 + (v - 0.74) * (1 - fall) for v in (0.97, 0.91, 0.84, 0.79)]
            file.write(json.dumps(line) + "\n")
    if matrices:
        learnt = final + 0.02 * rng.random((4, 4))
        transition = {
            "class_transition": (learnt / learnt.sum(1, keepdims=True)).tolist(),
            "affinity_transition": [[0.843, 0.157], [0.121, 0.879]],
            "prior": [0.84, 0.089, 0.02, 0.051],
            "true_class_transition": (final / final.sum(1, keepdims=True)).tolist(),
            "true_affinity_transition": [[0.861, 0.139], [0.102, 0.898]],
        }
        (folder / "transition.json").write_text(json.dumps(transition), encoding="utf-8")
    config = {
        "method": {"name": method, "warmup": 5 if matrices else 0, "consistency_weight": 0.01},
        "data": {"name": "endovis18-parts", "size": [256, 320], "noise": noise},
        "train": {"epochs": epochs, "batch_size": 3, "seed": 0},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return folder


# --- reading the page back ------------------------------------------------------------------------------------------

VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """The page as a browser would see it: tags, links, table rows and the text of script elements."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self.text = ""
        self.source = file.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            key = self.tags[-1][1].get("id") or "program"
            self.scripts[key] = self.scripts.get(key, "") + data
        elif self.open[-1:] != ["style"]:
            self.text += data
            if self.open and self.rows and {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data.strip()

    @property
    def gallery(self) -> dict:
        return json.loads(self.scripts["gallery-data"])

    def picture(self, number: int) -> Image.Image:
        return Image.open(BytesIO(base64.b64decode(self.scripts["gallery-blobs"].split("\n")[number])))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        write_run(folder / "first", method="baseline", quality=0.2, matrices=False),
        write_run(folder / "second", method="jcas", quality=0.8),
    ]


@pytest.fixture(scope="module")
def page(two_runs: list[Path]) -> Page:
    return Page(build_report(two_runs, two_runs[0].parent / "report.html", title="Two runs"))


def results(run: Path) -> dict:
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


def test_report_needs_no_network(page: Page):
    links = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("href", "src", "srcset")]
    assert links and all(link.startswith("#") for link in links)
    assert "//" not in re.sub(r"\s//.*", "", page.scripts["program"])
    style = re.search(r"<style>(.*?)</style>", page.source, re.S)[1]
    assert "url(" not in style and "@import" not in style


def test_only_our_script_may_run(page: Page):
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(page.scripts["program"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_headline_shows_the_numbers_of_results_json(page: Page, two_runs: list[Path]):
    rows = {row[0]: row for row in page.rows if row[0] in ("baseline", "jcas") and "ellipse" in row}
    for run in two_runs:
        told = results(run)
        shown = [cell.removesuffix("★") for cell in rows[told["method"]]]
        assert shown[1:4] == [
            f"{told['jac']['mean']:.2f}", f"{told['dice']['mean']:.2f}", f"{told['last_epoch']['jac']['mean']:.2f}",
        ]  # fmt: skip
        assert shown[4] == "12/ 20"
    assert results(two_runs[1])["jac"]["mean"] > results(two_runs[0])["jac"]["mean"]
    assert rows["jcas"][1].endswith("★") and not rows["baseline"][1].endswith("★")


def test_class_tables_show_the_numbers_of_results_json(page: Page, two_runs: list[Path]):
    for run in two_runs:
        told = results(run)
        for table in (told["jac"], told["dice"]):
            wanted = [told["method"], *(f"{table[name]:.2f}" for name in (*CLASSES[1:], "mean"))]
            assert wanted in [[cell.removesuffix("★") for cell in row] for row in page.rows]


def test_summary_says_who_leads_and_by_how_much(page: Page, two_runs: list[Path]):
    low, high = (results(run)["jac"]["mean"] for run in two_runs)
    assert f"jcas reaches {high:.2f} % mean Jaccard, {high - low:.2f} points above the baseline." in page.text


def test_best_is_marked_only_among_runs_with_the_same_noise(tmp_path: Path):
    runs = [
        write_run(tmp_path / "a", method="jcas", noise="ellipse", images=1, quality=0.3),
        write_run(tmp_path / "b", method="jcas", noise="symmetric", images=1, quality=0.9),
    ]
    page = Page(build_report(runs, tmp_path / "report.html"))
    assert not any("★" in cell for row in page.rows for cell in row)
    assert any(row[0] == "jcas, ellipse" for row in page.rows)


def test_matrices_show_learnt_and_true_numbers(page: Page, two_runs: list[Path]):
    told = json.loads((two_runs[1] / "transition.json").read_text(encoding="utf-8"))
    for key in ("class_transition", "true_class_transition"):
        assert ["shaft", *(f"{value:.3f}" for value in told[key][1])] in page.rows
    assert ["same", "0.121", "0.879"] in page.rows and ["same", "0.102", "0.898"] in page.rows
    # |0.843-0.861| + |0.157-0.139| + |0.121-0.102| + |0.879-0.898| over a sum of 2
    assert "Relative error of the learnt matrix: 0.037" in page.text
    assert "9.3 %" in page.text and "14.8 %" in page.text
    found = "Found out by jcas: labels drawn (roughness 0.002), predictions refined by appearance."
    assert found in " ".join(page.text.split())


def test_settings_that_differ_are_listed_and_equal_ones_are_not(page: Page):
    assert ["method.warmup", "0", "5"] in page.rows
    assert not any(row[0] == "train.batch_size" for row in page.rows)


def test_gallery_joins_runs_by_id_and_stores_shared_pictures_once(page: Page, two_runs: list[Path]):
    entries = page.gallery["entries"]
    assert [entry["id"] for entry in entries] == [f"seq_00/frame{i:04d}" for i in range(3)]
    for entry in entries:
        first, second = entry["runs"]
        assert first["given"] == second["given"] and first["clean"] == second["clean"]
        assert first["predicted"] != second["predicted"]
    # per entry: image, given, clean, and for both runs prediction and difference
    assert len(page.scripts["gallery-blobs"].split("\n")) == 3 * (3 + 2 * 2)


def test_gallery_pictures_are_small_and_none_is_in_the_document(page: Page):
    assert not any(tag == "img" for tag, _ in page.tags)
    image = page.picture(page.gallery["entries"][0]["image"])
    assert image.format == "WEBP" and image.size == (256, 205)
    assert len(page.scripts["gallery-blobs"]) / 3 < 30_000


def test_gallery_label_maps_keep_ids_and_hide_the_background(page: Page, two_runs: list[Path]):
    stored = page.picture(page.gallery["entries"][0]["runs"][1]["clean"])
    file = Image.open(two_runs[1] / "gallery" / "00000_clean.png").resize((256, 205), Image.Resampling.NEAREST)
    ids = np.asarray(file).copy()
    ids[ids == 255] = 4
    assert stored.mode == "P" and np.array_equal(np.asarray(stored), ids)
    pixels = np.asarray(stored.convert("RGBA"))
    assert (pixels[ids == 0][:, 3] == 0).all() and (pixels[ids > 0][:, 3] == 255).all()
    assert (pixels[ids == 2][:, :3] == LabelSpace(CLASSES).colours[2]).all()


def test_difference_tells_extra_missed_other_class_and_unjudged(tmp_path: Path):
    run = write_run(tmp_path / "run", images=1)
    predicted, clean = [[0, 1, 0, 1, 2, 1]], [[0, 1, 1, 0, 1, 255]]
    for layer, ids in (("predicted", predicted), ("clean", clean)):
        Image.fromarray(np.array(ids, np.uint8)).save(run / "gallery" / f"00000_{layer}.png")
    Image.new("RGB", (6, 1)).save(run / "gallery" / "00000_image.jpg")
    page = Page(build_report([run], tmp_path / "report.html"))
    stored = page.picture(page.gallery["entries"][0]["runs"][0]["difference"])
    assert np.asarray(stored).tolist() == [[0, 0, 2, 1, 3, 4]]


def test_hostile_names_stay_text(tmp_path: Path):
    classes = ["background", HOSTILE, "<b>wrist</b>", "clasper"]
    scores = {HOSTILE: 50.0, "<b>wrist</b>": 60.0, "clasper": None, "mean": 55.0}
    run = write_run(
        tmp_path / "run", images=1, ids=(HOSTILE,), classes=classes, jac=scores, dice=scores, dataset=HOSTILE,
        commit=HOSTILE, noise_info=None, findings={HOSTILE: HOSTILE},
    )  # fmt: skip
    page = Page(build_report([run], tmp_path / "report.html", title=HOSTILE))
    assert page.gallery["entries"][0]["id"] == HOSTILE
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert HOSTILE in page.text and "<b>wrist</b>" in page.text
    assert "<script>alert" not in page.source
    assert any(row[1:] == ["50.00", "60.00", "–", "55.00"] for row in page.rows)


def test_embedded_json_cannot_leave_its_element():
    value = {"a": "</script><!--", "b": "\u2028&"}
    text = embed_json(value)
    assert "<" not in text and "\u2028" not in text and json.loads(text) == value


def test_results_alone_make_a_report(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    told = {"method": "unet", "dataset": "acdc", "classes": ["background", "rv"], "jac": {"rv": 1, "mean": 1}}
    (run / "results.json").write_text(json.dumps(told | {"dice": {"rv": 2, "mean": 2}}))
    page = Page(build_report([run], tmp_path / "deep" / "report.html"))
    assert "unet reaches 1.00 % mean Jaccard." in page.text and "unet learns no transition matrix" in page.text
    assert "gallery-data" not in page.scripts


def test_scores_against_given_masks_carry_a_warning(page: Page, tmp_path: Path):
    other = Page(build_report([write_run(tmp_path / "run", images=1, truth="masks")], tmp_path / "report.html"))
    assert "Read with care" in other.text and "Read with care" not in page.text


def test_diverged_and_interrupted_run_still_makes_a_report(tmp_path: Path):
    run = write_run(tmp_path / "run", images=1, epochs=3)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = re.sub(r'"loss": [\d.]+', '"loss": NaN', lines[1])
    (run / "metrics.jsonl").write_text("\n".join([*lines, '{"epoch": 4, "tra']))
    page = Page(build_report([run], tmp_path / "report.html"))
    loss = next(attrs["data-series"] for tag, attrs in page.tags if attrs.get("class") == "card chart")
    assert [y is None for _, y in json.loads(loss)[0]] == [False, True, False]


def test_same_runs_give_the_same_bytes_and_no_leftovers(two_runs: list[Path], tmp_path: Path):
    first = build_report(two_runs, tmp_path / "one.html").read_bytes()
    assert build_report(two_runs, tmp_path / "two.html").read_bytes() == first
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.html", "two.html"]


def test_runs_get_the_shortest_names_that_differ(tmp_path: Path):
    settings = (("a", "jcas", 0), ("b", "jcas", 0), ("c", "volmin", 0), ("d", "volmin", 1), ("e", "baseline", 0))
    runs = [
        read_run(write_run(tmp_path / name, method=method, seed=seed, images=1, epochs=1))
        for name, method, seed in settings
    ]
    assert run_names(runs) == ["jcas, a", "jcas, b", "volmin, seed 0", "volmin, seed 1", "baseline"]
    assert run_names([runs[0], runs[0]]) == ["jcas (1)", "jcas (2)"]


def test_folder_without_results_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=f"^not a run folder: {re.escape(str(tmp_path))}"):
        build_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(ValueError, match="at least one run folder"):
        build_report([], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("results.json", "{", r"results\.json is not valid JSON"),
        ("results.json", "[]", r"results\.json does not hold a JSON object"),
        ("results.json", '{"method": "jcas"}', "lacks dataset, classes, jac, dice"),
        ("metrics.jsonl", '{"epo\n{"epoch": 2}', r"metrics\.jsonl line 1 is not valid JSON"),
        ("metrics.jsonl", '{"loss": 2}', r"metrics\.jsonl line 1 lacks epoch"),
        ("transition.json", "nope", r"transition\.json is not valid JSON"),
        ("config.yaml", "a: [", r"config\.yaml is not valid YAML"),
        ("gallery/gallery.json", '[{"id": "a", "files": {"image": "../results.json"}}]', "outside its folder"),
        ("gallery/gallery.json", '[{"id": "a"}]', "without id or files"),
    ],
)
def test_damaged_file_is_named_in_one_line(tmp_path: Path, file: str, content: str, message: str):
    run = write_run(tmp_path / "run", images=1, epochs=2)
    (run / file).write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.full((4, 4), 9, np.uint8), r"00000_given\.png has label 9"),
        (np.zeros((4, 4, 3), np.uint8), r"00000_given\.png is not a label map"),
    ],
)
def test_wrong_label_map_is_named(tmp_path: Path, mask: np.ndarray, message: str):
    run = write_run(tmp_path / "run", images=1)
    Image.fromarray(mask).save(run / "gallery" / "00000_given.png")
    with pytest.raises(ValueError, match=message):
        build_report([run], tmp_path / "report.html")


# --- charts ---------------------------------------------------------------------------------------------------------


def test_ticks_are_round_and_enclose_the_range():
    for low, high in ((0.013, 0.97), (-3.2, 51.0), (5.0, 5.0), (0.0, 0.0), (1e-7, 3e-7)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8


def test_chart_breaks_its_line_at_missing_values():
    points = ((1.0, 1.0), (2.0, 2.0), (3.0, None), (4.0, 1.0), (5.0, 2.0))
    chart = line_chart("Loss", [Series("a", points)], x_label="epoch")
    assert chart.svg.count("<polyline") == 2


def test_chart_of_one_epoch_is_a_dot_and_of_nothing_is_none():
    assert 'class="dot s0"' in line_chart("Loss", [Series("a", ((1.0, 0.5),))], x_label="epoch").svg
    assert line_chart("Loss", [Series("a", ((1.0, None),)), Series("b", ())], x_label="epoch") is None
