"""EndoVis: small trees in the published layouts become instrument-part datasets."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from folders import save
from PIL import Image

from jcas.benchmark.noisy_sets import label_hash
from jcas.data import check, open_dataset, read_endovis17, read_endovis18

# The published labels.json of the challenge: name, colour, classid.
SCENE = [
    ("background-tissue", [0, 0, 0]),
    ("instrument-shaft", [0, 255, 0]),
    ("instrument-clasper", [0, 255, 255]),
    ("instrument-wrist", [125, 255, 12]),
    ("kidney-parenchyma", [255, 55, 0]),
    ("covered-kidney", [24, 55, 125]),
    ("thread", [187, 155, 25]),
    ("clamps", [0, 255, 125]),
    ("suturing-needle", [255, 255, 125]),
    ("suction-instrument", [123, 15, 175]),
    ("small-intestine", [124, 155, 5]),
    ("ultrasound-probe", [12, 255, 141]),
]
PART_OF_SCENE = np.array([0, 1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0])  # shaft 1, wrist 2, clasper 3


def write_18(root: Path, sequences=(1, 2, 3), *, size=(64, 80), frames=2, release="") -> np.ndarray:
    entries = [{"name": name, "color": colour, "classid": i} for i, (name, colour) in enumerate(SCENE)]
    (root / release).mkdir(parents=True, exist_ok=True)
    (root / release / "labels.json").write_text(json.dumps(entries))
    # Bands of all scene classes, wide enough to survive any resizing.
    scene = (np.arange(size[1]) * len(SCENE) // size[1])[None].repeat(size[0], axis=0)
    colours = np.array([colour for _, colour in SCENE], dtype=np.uint8)[scene]
    for number in sequences:
        for frame in range(frames):
            folder = root / release / f"seq_{number}"
            save(folder / "left_frames" / f"frame{frame:03d}.png", np.full((*size, 3), 10 * number, np.uint8))
            save(folder / "labels" / f"frame{frame:03d}.png", colours)
    return scene


def write_17(root: Path, sequences=(1, 2), *, size=(64, 80), frames=2, release="") -> None:
    left = np.zeros(size, np.uint8)
    left[: size[0] // 2, :10], left[: size[0] // 2, 10:20], left[: size[0] // 2, 20:30] = 10, 20, 30
    right = np.zeros(size, np.uint8)
    right[size[0] // 2 :, 40:60] = 10
    other = np.full(size, 40, np.uint8)
    for number in sequences:
        folder = root / release / f"instrument_dataset_{number}"
        for frame in range(frames):
            name = f"frame{frame:03d}.png"
            save(folder / "left_frames" / name, np.full((*size, 3), 10 * number, np.uint8))
            save(folder / "ground_truth" / "Left_Prograsp_Forceps_labels" / name, left)
            # One published sequence stores its grey masks as RGB, in folders without `_labels`.
            save(folder / "ground_truth" / "Right_Vessel_Sealer" / name, np.dstack([right] * 3))
            save(folder / "ground_truth" / "Other_labels" / name, other)


def test_endovis18_maps_scene_colours_to_parts(tmp_path):
    scene = write_18(tmp_path)
    dataset = read_endovis18(tmp_path, size=None)
    assert dataset.labels.names == ("background", "shaft", "wrist", "clasper") and dataset.channels == 3
    sample = dataset.load(dataset.records[0], clean=True)
    np.testing.assert_array_equal(sample.noisy, PART_OF_SCENE[scene])
    assert torch.equal(sample.clean, sample.noisy) and dataset.truth_is_clean("test")
    assert (sample.id, sample.group) == ("seq_01_frame000", "seq_01")


def test_endovis18_is_256_by_320_by_default(tmp_path):
    scene = write_18(tmp_path, sequences=(1,), size=(1024, 1280), frames=1)
    dataset = open_dataset(tmp_path)
    sample = dataset.load(dataset.records[0], clean=True)
    assert sample.image.shape == (3, 256, 320) and dataset.size(dataset.records[0]) == (256, 320)
    np.testing.assert_array_equal(sample.noisy, PART_OF_SCENE[scene[2::4, 2::4]])
    assert sample.image.mean() == pytest.approx(10 / 255, abs=1e-6)


def test_endovis18_has_the_split_of_isinet(tmp_path):
    published = [n for n in range(1, 17) if n != 8]
    write_18(tmp_path, published, frames=1, size=(8, 24))
    dataset = read_endovis18(tmp_path)
    assert [r.group for r in dataset.split("test")] == ["seq_02", "seq_05", "seq_09", "seq_15"]
    assert len(dataset.split("train")) == 11 and dataset.split("val") == []
    held_out = read_endovis18(tmp_path, validation_sequences=(3, 16))
    assert [r.group for r in held_out.split("val")] == ["seq_03", "seq_16"]
    assert len(held_out.split("train")) == 9
    for bad in (2, 8):
        with pytest.raises(ValueError, match=f"validation sequence {bad} is not a training sequence"):
            read_endovis18(tmp_path, validation_sequences=(bad,))


def test_description_beside_the_sequences_chooses_split_and_size(tmp_path):
    write_18(tmp_path, (1, 2, 3, 4))
    assert [r.group for r in open_dataset(tmp_path).split("test")] == ["seq_02"] * 2
    (tmp_path / "dataset.yaml").write_text("validation_sequences: [4]\nsize: [32, 40]\n")
    dataset = open_dataset(tmp_path)
    assert {s: {r.group for r in dataset.split(s)} for s in ("train", "val", "test")} == {
        "train": {"seq_01", "seq_03"}, "val": {"seq_04"}, "test": {"seq_02"},
    }  # fmt: skip
    assert dataset.load(dataset.records[0], clean=True).image.shape == (3, 32, 40)
    (tmp_path / "dataset.yaml").write_text("test_sequences: [3]\nsize: null\n")
    dataset = open_dataset(tmp_path)
    assert {r.group for r in dataset.split("test")} == {"seq_03"} and dataset.size(dataset.records[0]) == (64, 80)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("validation_sequence: [1]", "unknown key 'validation_sequence', did you mean 'validation_sequences'"),
        ("validation_sequences: [2]", "validation sequence 2 is not a training sequence"),
        ("test_sequences: [7]", r"no test sequence 7 \(there are: 1, 2, 3\)"),
        ("size: [0, 10]", "size.0: .*greater than 0"),
        ("size: 5", "size: .*5"),
    ],
)
def test_bad_description_beside_the_sequences_is_one_line(tmp_path, text, message):
    write_18(tmp_path)
    (tmp_path / "dataset.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        open_dataset(tmp_path)
    assert "\n" not in str(error.value)


def test_endovis18_is_found_inside_its_release_folders(tmp_path):
    write_18(tmp_path, (1, 2), release="miccai_challenge_2018_release_1")
    write_18(tmp_path, (5,), release="miccai_challenge_release_2")
    dataset = open_dataset(tmp_path)
    assert dataset.name == "EndoVis18" and len(dataset.records) == 6
    check(dataset)
    write_18(tmp_path, (5,), release="copy")
    with pytest.raises(ValueError, match="sequence 5 is also at"):
        open_dataset(tmp_path)


def test_endovis18_errors_name_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder seq_\* with left_frames/ and labels/"):
        read_endovis18(tmp_path)
    write_18(tmp_path, (1,))
    stray = np.zeros((64, 80, 3), np.uint8)
    stray[0, 0] = (1, 2, 3)  # one odd pixel is ignored, a foreign palette is not
    label = save(tmp_path / "seq_1" / "labels" / "frame000.png", stray)
    dataset = read_endovis18(tmp_path, size=None)
    assert dataset.load(dataset.records[0], clean=False).noisy[0, :2].tolist() == [255, 0]
    save(label, stray + 1)
    with pytest.raises(ValueError, match=r"seq_1/labels/frame000\.png: 100% of the pixels have a value that is not"):
        dataset.load(dataset.records[0], clean=False)
    label.unlink()
    with pytest.raises(ValueError, match=r"left_frames/frame000\.png: no label of this name in seq_1/labels/"):
        read_endovis18(tmp_path)
    (tmp_path / "labels.json").write_text('[{"name": "instrument-shaft", "color": [0, 255, 0]}]')
    with pytest.raises(ValueError, match=r"labels\.json: .*instrument-clasper.*instrument-wrist.*is missing"):
        read_endovis18(tmp_path)
    (tmp_path / "labels.json").write_text("{")
    with pytest.raises(ValueError, match=r"labels\.json: expected a list"):
        read_endovis18(tmp_path)
    (tmp_path / "labels.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no labels\.json"):
        read_endovis18(tmp_path)


def test_endovis17_merges_the_instruments_and_leaves_the_probe_out(tmp_path):
    write_17(tmp_path)
    dataset = read_endovis17(tmp_path, size=None)
    mask = dataset.load(dataset.records[0], clean=True).noisy
    assert [mask[0, c].item() for c in (5, 15, 25, 35, 45)] == [1, 2, 3, 0, 0]
    assert [mask[-1, c].item() for c in (5, 39, 40, 59, 60)] == [0, 0, 1, 1, 0]
    assert mask.unique().tolist() == [0, 1, 2, 3]


def test_endovis17_crops_the_black_border_and_resizes(tmp_path):
    folder = tmp_path / "instrument_dataset_1"
    frame = np.zeros((1080, 1920, 3), np.uint8)
    frame[28:1052, 320:1600] = 100
    parts = np.zeros((1080, 1920), np.uint8)
    parts[28:1052, 320:960] = 30
    save(folder / "left_frames" / "frame000.png", frame)
    save(folder / "ground_truth" / "A_labels" / "frame000.png", parts)
    dataset = open_dataset(tmp_path)
    sample = dataset.load(dataset.records[0], clean=True)
    assert sample.image.shape == (3, 256, 320)
    assert sample.image.min() == pytest.approx(100 / 255, abs=1e-5)
    assert sample.noisy[:, :160].unique().tolist() == [3] and sample.noisy[:, 160:].unique().tolist() == [0]
    native = read_endovis17(tmp_path, size=None)
    assert native.size(native.records[0]) == (1024, 1280) == native.load(native.records[0], clean=True).noisy.shape


def test_endovis17_trains_on_all_sequences_unless_told(tmp_path):
    write_17(tmp_path, (1, 2), release="instrument_1_4_training")
    write_17(tmp_path, (5,), release="instrument_5_8_training")
    save(tmp_path / "test" / "instrument_dataset_1" / "left_frames" / "frame000.png", np.zeros((4, 4, 3), np.uint8))
    dataset = open_dataset(tmp_path)
    assert dataset.name == "EndoVis17"
    assert [len(dataset.split(s)) for s in ("train", "val", "test")] == [6, 0, 0]
    parted = read_endovis17(tmp_path, test_sequences=(1,), validation_sequences=(5,))
    assert [len(parted.split(s)) for s in ("train", "val", "test")] == [2, 2, 2]
    check(parted)


def test_endovis17_errors_name_the_file(tmp_path):
    write_17(tmp_path, (1,))
    masks = tmp_path / "instrument_dataset_1" / "ground_truth"
    dataset = read_endovis17(tmp_path)
    save(masks / "Right_Vessel_Sealer" / "frame000.png", np.zeros((9, 9), np.uint8))
    with pytest.raises(
        ValueError, match=r"Right_Vessel_Sealer/frame000\.png: size \(9, 9\), but its image has \(64, 80\)"
    ):
        check(dataset)
    (masks / "Right_Vessel_Sealer" / "frame000.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"Right_Vessel_Sealer/frame000\.png: no such file"):
        check(dataset)


def test_labels_that_lie_in_folders_have_a_hash_that_changes_with_them(tmp_path):
    write_17(tmp_path / "a")
    before = label_hash(read_endovis17(tmp_path / "a"))
    assert before == label_hash(read_endovis17(tmp_path / "a"))
    mask = next((tmp_path / "a").rglob("ground_truth/*/*.png"))
    Image.fromarray(np.zeros_like(np.asarray(Image.open(mask)))).save(mask)
    assert label_hash(read_endovis17(tmp_path / "a")) != before
