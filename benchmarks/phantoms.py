"""Pictures that we draw ourselves, with true masks: what a method does on kinds of images that no real set here shows.

    python benchmarks/phantoms.py runs/phantoms      # seconds; opens as any jcas folder

Nine kinds, 128 x 128 pixels: ``skin`` (a lesion with a vague outline under hairs, in colour), ``ultrasound`` (a dark
lesion in speckle, with a shadow), ``chest`` (lungs and a heart that lies over one of them: as grey there as the tissue
beside it), ``organs`` (five organs, two of them of the same grey), ``nuclei`` (many small ones, stained), ``tool``
(in colour, half of it like parts of the background), ``polyp`` (a little redder than mucosa that is redder here and
paler there), ``vessels`` (a branching tree, one to six pixels wide, in the colours of a retina) and ``disc`` (the head
of the optic nerve, with a vague cup in it and vessels over both). They are no data about patients and prove nothing
about them; but they may be looked at as often as one likes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

SIDE = 128
TRAINING, VALIDATION, TEST = 120, 20, 80
ROWS, COLUMNS = np.mgrid[:SIDE, :SIDE]
Random = np.random.Generator
Picture = tuple[np.ndarray, np.ndarray]  # image in 0 .. 1, (H, W) or (H, W, 3), and mask


def texture(rng: Random, scale: float | tuple[float, float]) -> np.ndarray:
    """Smooth noise of deviation 1."""
    noise = gaussian_filter(rng.normal(size=(SIDE, SIDE)), scale)
    return noise / noise.std()


def blob(
    rng: Random, centre: tuple[float, float], radius: float, *, uneven: float = 0.3, flat: float = 0.3
) -> np.ndarray:
    """A shape without a name: an ellipse with a wavy outline, turned at random."""
    turn = rng.uniform(0, np.pi)
    across, down = COLUMNS - centre[0], ROWS - centre[1]
    u, v = across * np.cos(turn) + down * np.sin(turn), down * np.cos(turn) - across * np.sin(turn)
    angle = np.arctan2(v, u)
    waves = sum(rng.normal(0, uneven / n) * np.cos(n * angle + rng.uniform(0, 2 * np.pi)) for n in range(2, 7))
    return np.hypot(u * (1 + flat), v * (1 - flat)) < radius * (1 + waves)


def soft(mask: np.ndarray, width: float) -> np.ndarray:
    """Its indicator with an outline as vague as this."""
    return gaussian_filter(mask.astype(float), width)


def somewhere(rng: Random) -> tuple[float, float]:
    return rng.uniform(0, SIDE), rng.uniform(0, SIDE)


def skin(rng: Random) -> Picture:
    middle = SIDE / 2 + rng.normal(0, 10, 2)
    lesion = blob(rng, (middle[0], middle[1]), rng.uniform(15, 34), uneven=0.35)
    around = np.array([0.82, 0.62, 0.52]) + rng.normal(0, 0.04, 3)
    within = around * rng.uniform(0.55, 0.85) + rng.normal(0, 0.03, 3)
    share = soft(lesion, rng.uniform(0.8, 2.5))[..., None]
    image = around * (1 - share) + within * share * (1 + 0.12 * texture(rng, 4)[..., None])
    image *= (1 - 0.5 * ((COLUMNS - SIDE / 2) ** 2 + (ROWS - SIDE / 2) ** 2) / SIDE**2)[..., None]
    image += 0.03 * texture(rng, 1)[..., None]
    for _ in range(rng.integers(0, 8)):  # hairs
        place, angle = np.array(somewhere(rng)), rng.uniform(0, 2 * np.pi)
        for _ in range(60):
            angle += rng.normal(0, 0.05)
            place += np.cos(angle), np.sin(angle)
            if (place >= 0).all() and (place < SIDE).all():
                image[int(place[1]), int(place[0])] *= 0.45
    return image, lesion.astype(np.uint8)


def ultrasound(rng: Random) -> Picture:
    lesion = blob(rng, (SIDE / 2 + rng.normal(0, 16), SIDE / 2 + rng.normal(0, 10)), rng.uniform(10, 26))
    echo = 0.5 + 0.12 * texture(rng, (3, 14)) + 0.1 * texture(rng, 10)
    echo *= 1 - soft(lesion, 1.5) * rng.uniform(0.35, 0.7)
    lowest = np.where(lesion.any(0), SIDE - 1 - np.argmax(lesion[::-1], 0), SIDE)
    echo *= 1 + rng.choice([-0.3, 0.25]) * soft(lowest[None] < ROWS, 2)
    for _ in range(2):  # dark places that are no lesion
        echo *= 1 - 0.35 * soft(blob(rng, somewhere(rng), rng.uniform(5, 12)), 4)
    speckle = gaussian_filter(echo.clip(0.02, 1) * rng.rayleigh(0.8, echo.shape), (0.5, 0.9))
    return np.log1p(3 * speckle) / 1.8, lesion.astype(np.uint8)


def chest(rng: Random) -> Picture:
    level = 0.48 * SIDE + rng.normal(0, 3)
    width, height = rng.uniform(0.13, 0.18) * SIDE, rng.uniform(0.28, 0.36) * SIDE
    lungs = np.zeros((SIDE, SIDE), bool)
    for side in (-1, 1):
        middle = SIDE / 2 + side * rng.uniform(0.2, 0.24) * SIDE
        distance = np.hypot((COLUMNS - middle) / width / (1 + 0.25 * (ROWS - level) / height), (ROWS - level) / height)
        lungs |= (distance < 1) & (level + height * (0.75 + 0.1 * np.cos((COLUMNS - SIDE / 2) / 8)) > ROWS)
    place = (0.57 * SIDE, level + 0.16 * SIDE)
    heart = blob(rng, place, rng.uniform(0.13, 0.19) * SIDE, uneven=0.1, flat=0.2)
    body = np.hypot((COLUMNS - SIDE / 2) / (0.46 * SIDE), (ROWS - 0.55 * SIDE) / (0.55 * SIDE)) < 1
    image = 0.2 + 0.45 * body + 0.06 * texture(rng, 8) - 0.3 * soft(lungs, 1.2) + 0.25 * soft(heart, 1.5)
    image += 0.1 * np.exp(-(((COLUMNS - SIDE / 2) / 5) ** 2))  # spine
    for rib in np.linspace(level - height, level + height, 9):
        image += 0.05 * body * np.exp(-((((ROWS - rib) - 0.12 * np.abs(COLUMNS - SIDE / 2)) / 2.2) ** 2))
    return image + 0.03 * rng.normal(size=image.shape), np.where(heart, 2, lungs).astype(np.uint8)


def organs(rng: Random) -> Picture:
    body = blob(rng, (SIDE / 2, SIDE / 2), 0.46 * SIDE, uneven=0.05, flat=0.12)
    image, mask = np.where(body, 0.35, 0.05), np.zeros((SIDE, SIDE), np.uint8)
    for organ, across, down, radius, grey in (
        (1, 0.33, 0.42, 0.2, 0.55),  # liver
        (2, 0.72, 0.5, 0.1, 0.53),  # spleen
        (3, 0.36, 0.68, 0.065, 0.62),  # kidneys
        (3, 0.64, 0.68, 0.065, 0.62),
        (4, 0.5, 0.56, 0.04, 0.75),  # aorta
        (5, 0.56, 0.36, 0.09, 0.45),  # stomach
    ):
        place = SIDE * across + rng.normal(0, 3), SIDE * down + rng.normal(0, 3)
        shape = blob(rng, place, SIDE * radius * rng.uniform(0.85, 1.15)) & body
        mask[shape] = organ
        image = np.where(shape, grey + rng.normal(0, 0.015), image)
    image = gaussian_filter(image, 0.9) + 0.02 * texture(rng, 3) + rng.normal(0, 0.06, image.shape)
    return image, mask


def nuclei(rng: Random) -> Picture:
    mask = np.zeros((SIDE, SIDE), np.uint8)
    image = np.array([0.92, 0.75, 0.86]) + (0.04 * texture(rng, 6) + 0.03 * texture(rng, 2))[..., None]
    for _ in range(rng.integers(10, 24)):
        nucleus = blob(rng, somewhere(rng), rng.uniform(4, 9), uneven=0.15, flat=rng.uniform(0, 0.35))
        mask[nucleus] = 1
        stain = np.array([0.45, 0.3, 0.6]) + rng.normal(0, 0.07, 3)
        share = soft(nucleus, 0.8)[..., None]
        image = image * (1 - share) + stain * share * (1 + 0.1 * texture(rng, 1.5)[..., None])
    return image + rng.normal(0, 0.02, image.shape), mask


def tool(rng: Random) -> Picture:
    """Half of it has a colour of its own, half that of the dark patches of the background."""
    pink, dark, grey = (np.array(colour) for colour in ((0.85, 0.55, 0.5), (0.45, 0.2, 0.18), (0.6, 0.62, 0.68)))
    patches = soft(texture(rng, 14) > 0.5, 1.5)[..., None]
    image = pink * (1 - patches) + dark * patches
    centre = SIDE / 2 + rng.normal(0, 14, 2)
    shape = blob(rng, (centre[0], centre[1]), rng.uniform(16, 28))
    turn = rng.uniform(0, 2 * np.pi)
    half = (COLUMNS - centre[0]) * np.cos(turn) + (ROWS - centre[1]) * np.sin(turn) > rng.normal(0, 4)
    for part, colour in ((shape & half, grey), (shape & ~half, dark)):
        share = soft(part, 0.8)[..., None]
        image = image * (1 - share) + (colour + rng.normal(0, 0.02, 3)) * share
    return image * (1 + 0.05 * texture(rng, 5)[..., None]) + rng.normal(0, 0.02, image.shape), shape.astype(np.uint8)


def polyp(rng: Random) -> Picture:
    """A little redder than the mucosa, redder here and paler there itself; folds, uneven light, reflections."""
    shape = blob(rng, (SIDE / 2 + rng.normal(0, 16), SIDE / 2 + rng.normal(0, 16)), rng.uniform(12, 28), uneven=0.25)
    mucosa = np.array([0.78, 0.45, 0.38]) + rng.normal(0, 0.04, 3)
    redder = mucosa * (1 + np.array([0.05, -0.25, -0.2]) * rng.uniform(0.5, 1.5))
    share = soft(shape, 1.2)[..., None]
    image = mucosa * (1 - share) + redder * share
    image = image * (1 + 0.1 * texture(rng, 5) + 0.05 * texture(rng, 2))[..., None]
    image[..., 1:] *= (1 + 0.12 * texture(rng, 7))[..., None]
    place = rng.uniform(30, 98, 2)
    light = np.exp(-((COLUMNS - place[0]) ** 2 + (ROWS - place[1]) ** 2) / (2 * 60**2))
    slope = sum(np.gradient(soft(shape, 7)))
    image *= ((0.35 + 0.75 * light) * (1 + 1.6 * slope).clip(0.6, 1.4))[..., None]
    for _ in range(rng.integers(2, 5)):  # folds, which a polyp covers
        turn, (across, down) = rng.uniform(0, np.pi), somewhere(rng)
        away = (COLUMNS - across) * np.cos(turn) + (ROWS - down) * np.sin(turn) + 6 * texture(rng, 15)
        image *= (1 - 0.4 * np.exp(-((away / 4) ** 2)) * (1 - 0.8 * soft(shape, 1)))[..., None]
    for _ in range(rng.integers(1, 6)):  # reflections
        image += 0.6 * soft(blob(rng, somewhere(rng), rng.uniform(1.5, 3)), 1)[..., None]
    return image + rng.normal(0, 0.015, image.shape), shape.astype(np.uint8)


def branches(rng: Random, root: tuple[float, float], *, thickness: float, trunks: int) -> np.ndarray:
    """Trunks that wind away from a root and fork into thinner ones."""
    mask = np.zeros((SIDE, SIDE), bool)
    growing = [(np.array(root), turn, thickness) for turn in rng.uniform(0, 2 * np.pi) + np.arange(trunks) * 2.4]
    while growing:
        place, turn, width = growing.pop()
        for _ in range(int(rng.uniform(20, 45))):
            turn += rng.normal(0, 0.12)
            place = place + np.array([np.cos(turn), np.sin(turn)])
            if (place < -3).any() or (place > SIDE + 3).any():
                break
            left, top = np.maximum(place.astype(int) - 4, 0)
            near = (slice(top, top + 9), slice(left, left + 9))
            mask[near] |= np.hypot(COLUMNS[near] - place[0], ROWS[near] - place[1]) < width / 2
        else:
            if width > 1.6:
                growing += [(place, turn + side * rng.uniform(0.3, 0.7), width * 0.75) for side in (-1, 1)]
    return mask


def vessels(rng: Random) -> Picture:
    root = (rng.uniform(0.1, 0.9) * SIDE, SIDE / 2 + rng.normal(0, 8))
    tree = branches(rng, root, thickness=rng.uniform(4.5, 6), trunks=4)
    retina = np.array([0.75, 0.38, 0.18]) * (1 + 0.08 * texture(rng, 12) + 0.05 * texture(rng, 3))[..., None]
    bright = soft(np.hypot(COLUMNS - root[0], ROWS - root[1]) < 9, 2)[..., None]
    image = retina * (1 - bright) + np.array([0.95, 0.8, 0.5]) * bright
    blood = 1 - np.array([0.2, 0.5, 0.45]) * rng.uniform(0.5, 1)
    share = soft(tree, 0.7)[..., None]
    image = image * (1 - share) + image * blood * share
    image *= (1 - 0.6 * ((COLUMNS - SIDE / 2) ** 2 + (ROWS - SIDE / 2) ** 2) / SIDE**2)[..., None]
    return image + rng.normal(0, 0.025, image.shape), tree.astype(np.uint8)


def disc(rng: Random) -> Picture:
    middle = SIDE / 2 + rng.normal(0, 8, 2)
    radius = rng.uniform(24, 36)
    whole = blob(rng, (middle[0], middle[1]), radius, uneven=0.06, flat=rng.uniform(-0.1, 0.1))
    place = middle + rng.normal(0, 0.08 * radius, 2)
    cup = blob(rng, (place[0], place[1]), radius * rng.uniform(0.35, 0.65), uneven=0.12, flat=0.1) & whole
    image = np.array([0.72, 0.34, 0.16]) * (1 + 0.1 * texture(rng, 10) + 0.04 * texture(rng, 3))[..., None]
    for part, colour, width in ((whole, (0.88, 0.62, 0.34), 1.5), (cup, (0.95, 0.8, 0.55), 2.5)):
        share = soft(part, width)[..., None] * rng.uniform(0.7, 1)
        image = image * (1 - share) + (np.array(colour) + rng.normal(0, 0.02, 3)) * share
    share = soft(branches(rng, (place[0], place[1]), thickness=rng.uniform(4, 6), trunks=4), 0.8)[..., None]
    image = image * (1 - share) + image * np.array([0.8, 0.5, 0.5]) * share
    return image + rng.normal(0, 0.02, image.shape), np.where(cup, 2, whole).astype(np.uint8)


KINDS: dict[str, tuple[Callable[[Random], Picture], tuple[str, ...]]] = {
    "skin": (skin, ("lesion",)),
    "ultrasound": (ultrasound, ("lesion",)),
    "chest": (chest, ("lung", "heart")),
    "organs": (organs, ("liver", "spleen", "kidney", "aorta", "stomach")),
    "nuclei": (nuclei, ("nucleus",)),
    "tool": (tool, ("tool",)),
    "polyp": (polyp, ("polyp",)),
    "vessels": (vessels, ("vessel",)),
    "disc": (disc, ("rim", "cup")),
}


def write_phantoms(out: Path, kind: str, *, seed: int = 11) -> None:
    """A folder of images and true masks with a split."""
    draw, classes = KINDS[kind]
    rng = np.random.default_rng(seed)
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True)
    with (out / "split.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "split"])
        for number, split in enumerate(["train"] * TRAINING + ["val"] * VALIDATION + ["test"] * TEST):
            image, mask = draw(rng)
            name = f"{kind}{number:03}"
            Image.fromarray((image.clip(0, 1) * 255).astype(np.uint8)).save(out / "images" / f"{name}.png")
            Image.fromarray(mask).save(out / "masks" / f"{name}.png")
            writer.writerow([name, split])
    named = ", ".join(("background", *classes))
    (out / "dataset.yaml").write_text(f"name: {kind}\nclasses: [{named}]\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new folder, one below it for each kind")
    parser.add_argument("--seed", type=int, default=11, help="of every random choice")
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; choose a new folder")
    for kind in KINDS:
        write_phantoms(options.out / kind, kind, seed=options.seed)


if __name__ == "__main__":
    main()
