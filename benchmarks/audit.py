"""The label audit beside cleanlab: same probabilities, same masks, one run.

    pip install -c constraints.txt -e '.[audit-compare]'     # or an environment of its own: --cleanlab-python
    python benchmarks/audit.py --docs                        # about 50 minutes on one idle core

Accuracy: ACDC with ellipse, symmetric 0.2 and asymmetric 0.3 noise in half of the images, and LIDC with one reader's
masks judged against the majority of the three others; blood cells with ellipse noise in half of the images are the
line that no constant of the audit was chosen on. A JCAS run per line gives both sides their probabilities
(trained on the noisy labels themselves, tiny encoder, CPU). Lines: AUROC and average precision of wrong pixels,
precision at 100 of the image ranking. Speed and memory (`audit_cost.py`): 1,000 masks, each side in a process of its
own; a whole audit.
Repair: Jac of the repaired masks. Loop: plain baselines trained on given, repaired and weighted masks, scored on the
clean test split. Finished parts are kept, so an interrupted benchmark goes on. cleanlab is only compared with, never
imported by jcas.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from audit_cost import CONFIDENCE, memory, speed

ROOT = Path(__file__).resolve().parents[1]
NOISES: dict[str, dict[str, float]] = {"ellipse": {}, "symmetric": {"rate": 0.2}, "asymmetric": {"rate": 0.3}}
LINES = (*NOISES, "lidc4", "wbc")
MODEL = "jcas"  # gives both sides their probabilities
PARTS = ("speed", "memory", "accuracy", "repair", "loop")
BAD_READER = 0.5  # LIDC: a mask is bad if its Jac with the others' majority is below this; ACDC: if it got noise
MASKS = 1000
RANKED = 100
ACDC = {"size": (96, 96), "batch_size": 4, "epochs": 10}
LIDC = {"size": (64, 64), "batch_size": 8, "epochs": 20}
LOOP_EPOCHS = {"ellipse": 10, "symmetric": 10, "asymmetric": 10, "lidc4": 20, "wbc": 20}
LOOP_SEEDS = {"lidc4": 3}  # readers differ by little; one seed would say nothing
TRAINING = {
    "encoder": "tiny",
    "augmentation": "flip",
    "learning_rate": 2e-3,
    "matrix_learning_rate": 1e-2,
    "threads": 1,
}


# --- data and models -------------------------------------------------------------------------------------------------


def prepare(line: str, shared: Path, work: Path, *, images: int | None) -> Path:
    from jcas.corrupt import corrupt

    data = work / "data" / line
    if not data.exists():
        if line == "lidc4":
            one_reader(shared / "lidc4", data, images=images)
        else:
            noise, name = ("ellipse", "wbc") if line == "wbc" else (line, "acdc")
            source = shared / name
            if images is not None:
                source = some_of(source, work / "data" / f"some_{name}", images)
            corrupt(source, noise=noise, parameters=NOISES[noise] or None, out=data, share=0.5, progress=False)
    return data


def some_of(source: Path, out: Path, images: int) -> Path:
    """A few images of a dataset, evenly spread over its list: to try the benchmark, not for its numbers."""
    if out.exists():
        return out
    building = out.with_name(f".{out.name}")
    shutil.rmtree(building, ignore_errors=True)
    with (source / "split.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    rows = spread(rows, images)
    names = {row[header.index("name")] for row in rows}
    for folder in ("images", "masks"):
        (building / folder).mkdir(parents=True)
        for path in (source / folder).iterdir():
            if path.stem in names:
                shutil.copyfile(path, building / folder / path.name)
    with (building / "split.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    building.rename(out)
    return out


def spread(rows: list[Any], count: int | None) -> list[Any]:
    places = np.linspace(0, len(rows) - 1, min(count or len(rows), len(rows))).round().astype(int)
    return [rows[place] for place in places]


def one_reader(source: Path, out: Path, *, images: int | None) -> None:
    """Crops that four radiologists outlined: one of them gives the mask, the majority of the others is the truth."""
    from prepare import lidc_reader, read_split

    building = out.with_name(f".{out.name}")
    shutil.rmtree(building, ignore_errors=True)
    listed = spread([row for row in read_split(source) if row["n_raters"] == "4"], images)
    lidc_reader(source, building, seed=0, listed=listed)
    building.rename(out)


def trained(line: str, data: Path, folder: Path, *, method: str, epochs: int | None = None, seed: int = 0) -> Path:
    from jcas.config import make_config
    from jcas.engine import train

    if not (folder / "results.json").is_file():
        values = {**TRAINING, **(LIDC if line == "lidc4" else ACDC), "data": str(data), "method": method, "seed": seed}
        values |= {"selection": "last", "watch": "none"} | ({"epochs": epochs} if epochs else {})
        resume = (folder / "checkpoints" / "last.ckpt").is_file()
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        train(make_config(values), folder, resume=resume, progress=False)
    return folder


def predicted(run: Path, data: Path, folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Probabilities, given and true labels of each image, through files: both sides read the same numbers."""
    import torch

    from jcas.data import open_dataset
    from jcas.data.resize import resize_image
    from jcas.inference import probabilities
    from jcas.run import read_run

    torch.set_num_threads(1)
    if not folder.exists():
        building = folder.with_name(f".{folder.name}")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        model, dataset = read_run(run), open_dataset(data)
        for number, record in enumerate([*dataset.split("train"), *dataset.split("val")]):
            sample = dataset.load(record, clean=True)
            probs = probabilities(model.method, sample.image, model.config).numpy()
            masks = [np.asarray(mask, dtype=np.uint8) for mask in (sample.noisy, sample.clean)]
            network = model.method.model  # DeepLabV2: the features that its affinities would come from
            prepared = network.normalise(resize_image(sample.image, model.config.size)[None])
            like = alike(network.encoder(prepared).affinity, masks[0])
            arrays = {
                "probs": probs.astype(np.float32),
                "given": masks[0],
                "clean": masks[1],
                "like": like[: len(probs)],
            }
            np.savez(building / f"{number:05d}.npz", **arrays)
        building.rename(folder)
    return stored(folder)


def alike(features: Any, given: np.ndarray) -> np.ndarray:  # (C, h, w), C = 4
    """How much more often than in the image each class is a label among pixels of like features (rows of P')."""
    import torch
    from torch.nn import functional

    from jcas.core import Affinity

    with torch.no_grad():
        labels = functional.one_hot(torch.from_numpy(given).long().clamp(max=3), 4).permute(2, 0, 1)[None].float()
        labels = functional.interpolate(labels, size=features.shape[2:], mode="area")
        shares = Affinity(features).propagate(labels)
        return ((shares + 1e-3) / (labels.mean((2, 3), keepdim=True) + 1e-3))[0].half().numpy()


def stored(folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as item:
            yield item["probs"], item["given"], item["clean"]


# --- accuracy --------------------------------------------------------------------------------------------------------


def ours(folder: Path, *, matrix: np.ndarray | None = None, **options: bool) -> tuple[np.ndarray, np.ndarray]:
    """Wrong-label probability of every pixel and quality of every image, as `jcas audit` computes them."""
    from jcas.audit.posterior import judge

    if matrix is None:
        matrix = contested(folder)
    pixels, images = [], []
    for probs, given, _ in stored(folder):
        judged = judge(probs, given, matrix, **options)
        pixels.append(judged.wrongness.ravel())
        images.append(judged.quality)
    return np.concatenate(pixels), np.array(images)


def contested(folder: Path) -> np.ndarray:
    from jcas.audit.posterior import Conflicts
    from jcas.audit.streaming import COUNTED_IMAGES

    paths = sorted(folder.glob("*.npz"))
    conflicts, classes = Conflicts(), 0
    for place in np.unique(np.linspace(0, len(paths) - 1, COUNTED_IMAGES).round().astype(int)):
        with np.load(paths[place]) as item:
            classes = len(item["probs"])
            conflicts = conflicts.plus(item["probs"], item["given"])
    return conflicts.transition(classes)


def cleanlabs(folder: Path, out: Path, python: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pixel scores and the two image rankings of cleanlab, in its own environment."""
    if not out.exists():
        subprocess.run([python, __file__, "--cleanlab-scores", str(folder), str(out)], check=True)
    with np.load(out) as found:
        return 1 - found["pixels"], {name: found[name] for name in ("softmin", "num_pixel_issues")}


def cleanlab_scores(folder: Path, out: Path) -> None:
    """Score image by image (softmin) and, for the count of issues, all images of one size together."""
    from cleanlab.segmentation.filter import find_label_issues
    from cleanlab.segmentation.rank import get_label_quality_scores

    pixels, softmin, counts = [], [], {}
    by_size: dict[tuple[int, ...], list[int]] = {}
    items = list(stored(folder))
    for number, (probs, given, _) in enumerate(items):
        image, pixel = get_label_quality_scores(given[None].astype(int), probs[None], verbose=False)
        softmin.append(image[0])
        pixels.append(pixel.ravel().astype(np.float32))
        by_size.setdefault(given.shape, []).append(number)
    for members in by_size.values():
        labels = np.stack([items[i][1] for i in members]).astype(int)
        probs = np.stack([items[i][0] for i in members])
        issues = find_label_issues(labels, probs, n_jobs=1, verbose=False)
        counts |= dict(zip(members, 1 - issues.mean((1, 2)), strict=True))
    ranking = np.array([counts[i] for i in range(len(items))])
    with out.with_suffix(".new").open("wb") as file:
        np.savez(file, pixels=np.concatenate(pixels), softmin=np.array(softmin), num_pixel_issues=ranking)
    out.with_suffix(".new").rename(out)


def ranking_scores(suspicion: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """AUROC and average precision; ties count as one step."""
    order = np.argsort(-suspicion, kind="stable")
    ordered, hits = suspicion[order], wrong[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    true = np.cumsum(hits)[ends].astype(np.float64)
    false = ends + 1 - true
    recall, fallout = true / true[-1], false / max(false[-1], 1)
    steps = np.diff(np.insert(recall, 0, 0))
    auroc = np.trapezoid(np.insert(recall, 0, 0), np.insert(fallout, 0, 0))
    return {"auroc": float(auroc), "average_precision": float((steps * true / (true + false)).sum())}


def accuracy(line: str, data: Path, work: Path, python: str) -> dict[str, Any]:
    run = trained(line, data, work / "runs" / line, method=MODEL)
    folder = work / "probabilities" / line
    wrong, bad = [], []
    for _, given, clean in predicted(run, data, folder):
        wrong.append((given != clean).ravel())
        bad.append(jac([given], [clean]) < BAD_READER if line == "lidc4" else bool(wrong[-1].any()))
    truth, bad_images = np.concatenate(wrong), np.array(bad)

    def at_ranked(quality: np.ndarray) -> float:
        return float(bad_images[np.argsort(quality, kind="stable")[:RANKED]].mean())

    rows: dict[str, Any] = {
        "seconds_of_training": json.loads((run / "results.json").read_text())["seconds"],
        "wrong_pixels": float(truth.mean()),
        "images": len(bad),
        "bad_images": int(bad_images.sum()),
    }
    pixels, images = ours(folder)
    rows["jcas"] = {**ranking_scores(pixels, truth), "precision_at_100": at_ranked(images)}
    rows["estimated_wrong_pixels"] = float(pixels.mean())
    theirs, rankings = cleanlabs(folder, work / f"cleanlab_{line}.npz", python)
    rows["cleanlab"] = {
        **ranking_scores(theirs, truth),
        "precision_at_100": at_ranked(rankings["softmin"]),
        "precision_at_100_num_pixel_issues": at_ranked(rankings["num_pixel_issues"]),
    }
    for name, options in variants(run).items():
        rows[name] = ranking_scores(ours(folder, **options)[0], truth)
    for name, neighbours in (("features_instead_of_neighbours", False), ("features_and_neighbours", True)):
        rows[name] = ranking_scores(with_features(folder, neighbours=neighbours), truth)
    return rows


def with_features(folder: Path, *, neighbours: bool) -> np.ndarray:
    """Wrongness where pixels of like features have a say: the affinity evidence, tried as a further factor."""
    from scipy.ndimage import zoom

    from jcas.audit.posterior import judge

    matrix, pixels = contested(folder), []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as item:
            probs, given, like = item["probs"], item["given"], item["like"].astype(np.float32)
        factors = [side / small for side, small in zip(given.shape, like.shape[1:], strict=True)]
        posterior = judge(probs, given, matrix, neighbours=neighbours).posterior
        posterior = posterior * np.stack(
            [zoom(each, factors, order=1, grid_mode=True, mode="nearest") for each in like]
        )
        own = np.take_along_axis(posterior, given[None].astype(int), 0)[0]
        pixels.append((1 - own / np.maximum(posterior.sum(0), 1e-30)).ravel().astype(np.float32))
    return np.concatenate(pixels)


def variants(run: Path) -> dict[str, dict[str, Any]]:
    """What each part of the posterior is worth."""
    from jcas.run import read_run

    learned = read_run(run).method.matrices()["class_transition"].detach().double().numpy()
    return {
        "without_neighbours": {"neighbours": False},
        "without_surprise": {"surprise": False},
        "with_learned_matrix": {"matrix": learned},
        "learned_matrix_alone": {"matrix": learned, "neighbours": False, "surprise": False},
    }


# --- repair and train again ------------------------------------------------------------------------------------------


def jac(masks: list[np.ndarray], truths: list[np.ndarray]) -> float:
    """Mean over the foreground classes of the Jaccard index over all pixels."""
    classes = range(1, int(max(max(m.max(), t.max()) for m, t in zip(masks, truths, strict=True))) + 1)
    values = []
    for label in classes:
        both = sum(((m == label) & (t == label)).sum() for m, t in zip(masks, truths, strict=True))
        either = sum(((m == label) | (t == label)).sum() for m, t in zip(masks, truths, strict=True))
        if either:
            values.append(both / either)
    return float(np.mean(values)) if values else 1.0


def repair(line: str, work: Path) -> dict[str, float]:
    from jcas.audit.posterior import judge

    folder = work / "probabilities" / line
    matrix = contested(folder)
    given, repaired, truth = [], [], []
    for probs, mask, clean in stored(folder):
        given.append(mask)
        repaired.append(judge(probs, mask, matrix).repaired(mask, confidence=CONFIDENCE)[0])
        truth.append(clean)
    wrong = [sum(int((m != t).sum()) for m, t in zip(masks, truth, strict=True)) for masks in (given, repaired)]
    return {
        "jac_given": 100 * jac(given, truth),
        "jac_repaired": 100 * jac(repaired, truth),
        "wrong_pixels_given": wrong[0],
        "wrong_pixels_repaired": wrong[1],
    }


def loop(line: str, data: Path, work: Path, *, epochs: int) -> dict[str, Any]:
    """Jac on the clean test split of plain baselines trained on the given, the repaired and the weighted masks."""
    from jcas.audit import audit, write_dataset

    folder = work / "audits" / line
    if not (folder / "audit.json").is_file():
        audit(work / "runs" / line, folder, confidence=CONFIDENCE, progress=False)
    sources = {"given": data}
    for use in ("repaired", "weighted"):
        sources[use] = work / "data" / f"{line}_{use}"
        if not sources[use].exists():
            write_dataset(folder, sources[use], use=use)  # type: ignore[arg-type]
    rows: dict[str, Any] = {}
    for use, source in sources.items():
        found = []
        for seed in range(LOOP_SEEDS.get(line, 1)):
            folder = work / "runs" / f"{line}_baseline_{use}_{seed}"
            run = trained(line, source, folder, method="baseline", epochs=epochs, seed=seed)
            found.append(json.loads((run / "results.json").read_text())["jac"]["mean"])
        rows[f"baseline_jac_{use}"] = float(np.mean(found))
        rows[f"baseline_jac_{use}_of_seeds"] = found
    return rows


# --- tables ----------------------------------------------------------------------------------------------------------


def markdown(found: dict[str, Any]) -> str:
    lines: list[str] = []
    if rows := found.get("accuracy"):
        lines += [
            "| wrong labels | wrong pixels | AUROC: jcas / cleanlab | average precision: jcas / cleanlab "
            "| precision at 100 images: jcas / cleanlab softmin / issues |",
            "|---|---|---|---|---|",
        ]
        for line, row in rows.items():
            ours, theirs = row["jcas"], row["cleanlab"]
            pairs = [f"{best(ours[k], theirs[k])} / {theirs[k]:.4f}" for k in ("auroc", "average_precision")]
            ranks = (theirs["precision_at_100"], theirs["precision_at_100_num_pixel_issues"])
            ranked = f"{best(ours['precision_at_100'], max(ranks), 2)} / {ranks[0]:.2f} / {ranks[1]:.2f}"
            lines.append(f"| {described(line, row)} | {row['wrong_pixels']:.2%} | {' | '.join(pairs)} | {ranked} |")
        parts = {
            "jcas": "all", "without_neighbours": "without neighbours", "without_surprise": "without surprise",
            "with_learned_matrix": "learned matrix", "learned_matrix_alone": "learned matrix alone",
            "features_instead_of_neighbours": "features for neighbours",
            "features_and_neighbours": "features too",
        }  # fmt: skip
        lines += ["", f"| average precision | {' | '.join(parts.values())} |", "|---" * (len(parts) + 1) + "|"]
        for line, row in rows.items():
            values = " | ".join(f"{row[name]['average_precision']:.4f}" for name in parts)
            lines.append(f"| {line} | {values} |")
    for row in found.get("speed", {}).values():
        ours, theirs = row["jcas"], row["cleanlab"]
        lines += [
            "",
            f"| {row['masks']:,} masks of {row['side']} x {row['side']}, {row['classes']} classes | jcas | cleanlab "
            "| ratio | goal |",
            "|---|---|---|---|---|",
            f"| seconds | {ours['seconds']:.1f} | {theirs['seconds']:.1f} | {row['times_faster']:.1f}x | >= 2x |",
            f"| of a processor | {ours['cpu_seconds']:.1f} | {theirs['cpu_seconds']:.1f} "
            f"| {theirs['cpu_seconds'] / ours['cpu_seconds']:.1f}x | |",
            f"| peak memory, MB | {ours['peak_mb']:.0f} | {theirs['peak_mb']:.0f} | 1/{1 / row['memory_share']:.1f} "
            "| <= 1/4 |",
        ]
    if rows := found.get("repair"):
        loops = found.get("loop", {})
        lines += [
            "",
            "| Jac, % | given masks | repaired masks | wrong pixels removed | baseline on given | on repaired "
            "| on weighted |",
            "|---|---|---|---|---|---|---|",
        ]
        for line, row in rows.items():
            again = [loops.get(line, {}).get(f"baseline_jac_{use}") for use in ("given", "repaired", "weighted")]
            removed = 1 - row["wrong_pixels_repaired"] / max(row["wrong_pixels_given"], 1)
            cells = " | ".join("" if value is None else f"{value:.1f}" for value in again)
            lines.append(f"| {line} | {row['jac_given']:.1f} | {row['jac_repaired']:.1f} | {removed:.0%} | {cells} |")
    for row in found.get("memory", {}).values():
        lines += [
            "",
            f"A whole audit of {row['images']:,} images of {row['side']} x {row['side']} with flipped labels "
            f"({row['issues']:,} issues): {row['model_mb']:.0f} MB with the model before, {row['peak_mb']:.0f} MB at "
            f"the peak (goal: less than 1,000 MB more), {row['cpu_seconds'] / row['images']:.2f} s of a processor "
            "per image.",
        ]
    commits = sorted({row["commit"] for part in PARTS for row in found.get(part, {}).values()})
    stamp = f"Commit {', '.join(commits)}; seed 0 (lidc4 trained on again: 0, 1, 2), one thread, cleanlab "
    return "\n".join([*lines, "", f"{stamp}{found['cleanlab']}."])


def best(value: float, other: float, digits: int = 4) -> str:
    """Bold where it is not worse, at the digits that are shown."""
    text = f"{value:.{digits}f}"
    return f"**{text}**" if round(value, digits) >= round(other, digits) else text


def described(line: str, row: dict[str, Any]) -> str:
    rate = "".join(f" {value}" for value in NOISES.get(line, {}).values())
    names = {"lidc4": "lidc4, one reader", "wbc": "wbc, ellipse, held out"}
    return f"{names.get(line, f'acdc, {line}{rate}')} ({row['bad_images']} of {row['images']} images)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with acdc/ and lidc4/"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "benchmarks" / "out" / "audit", help="data, runs, results")
    parser.add_argument("--cleanlab-python", default=sys.executable, help="interpreter that has cleanlab")
    parser.add_argument("--lines", nargs="*", default=list(LINES), choices=LINES)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--images", type=int, help="only that many images of each dataset, to try the benchmark")
    parser.add_argument("--epochs", type=int, help="of every training, to try the benchmark")
    parser.add_argument("--masks", type=int, default=MASKS, help="masks of the speed test")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/RESULTS.md and docs/results/")
    parser.add_argument("--cleanlab-scores", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cleanlab_scores:
        cleanlab_scores(*options.cleanlab_scores)
        return
    if options.docs and (options.images or options.epochs or options.masks != MASKS):
        parser.error("--docs wants the whole benchmark, without --images, --epochs and --masks")
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.epochs:
        ACDC["epochs"] = LIDC["epochs"] = options.epochs
        LOOP_EPOCHS.update(dict.fromkeys(LOOP_EPOCHS, options.epochs))
    found = measure(options)
    print(markdown(found))
    if options.docs:
        from documents import write_section

        write_section("docs/RESULTS.md", "audit", markdown(found))
        (ROOT / "docs" / "results" / "audit.json").write_text(json.dumps(found, indent=1) + "\n")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Do what is not done yet; every finished part is stored at once."""
    from documents import commit

    results = options.work / "results.json"
    settings = {"images": options.images, "acdc": ACDC, "lidc": LIDC, "loop": LOOP_EPOCHS, "model": MODEL, **TRAINING}
    settings = json.loads(json.dumps(settings))
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {"settings": settings}
    if found["settings"] != settings:
        raise SystemExit(f"{results}: of other settings; choose another --work")
    asked = [options.cleanlab_python, "-c", "import cleanlab; print(cleanlab.__version__)"]
    found |= {"command": "python benchmarks/audit.py --docs", "seed": 0}
    found["cleanlab"] = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    clock = time.perf_counter()

    def keep(part: str, line: str, rows: dict[str, Any]) -> None:
        found.setdefault(part, {})[line] = rows | {"commit": commit()}
        results.parent.mkdir(parents=True, exist_ok=True)
        partial = results.with_suffix(".new")
        partial.write_text(json.dumps(found, indent=1) + "\n")
        partial.replace(results)
        print(f"{time.perf_counter() - clock:6.0f} s  {part} {line}", file=sys.stderr, flush=True)

    speed_line = f"{options.masks} masks"
    if "speed" in options.parts and speed_line not in found.get("speed", {}):
        keep("speed", speed_line, speed(options.work, options.cleanlab_python, options.masks))
    if "memory" in options.parts and speed_line not in found.get("memory", {}):
        keep("memory", speed_line, memory(options.work / "memory", options.masks))
    for line in options.lines:
        missing = [
            part for part in options.parts if part not in ("speed", "memory") and line not in found.get(part, {})
        ]
        if not missing:
            continue
        data = prepare(line, options.data, options.work, images=options.images)
        if "accuracy" in missing:
            keep("accuracy", line, accuracy(line, data, options.work, options.cleanlab_python))
        if "repair" in missing:
            keep("repair", line, repair(line, options.work))
        if "loop" in missing and line in LOOP_EPOCHS:
            keep("loop", line, loop(line, data, options.work, epochs=LOOP_EPOCHS[line]))
    return found


if __name__ == "__main__":
    main()
