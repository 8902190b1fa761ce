"""Synthetic endoscopy: robotic instruments over tissue, with exact part labels and a second, shifted look.

The scenes stand in for EndoVis18 instrument parts where that set cannot be had. Lengths are in units of the image
height, so one scene description serves every size. Instruments are painted part by part, far to near, at twice the
size and averaged down; the mask asks the same shapes at the pixel centres in the same order, so image and mask
agree on every occlusion.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

from jcas.data.new_folder import new_folder
from jcas.schema import LabelSpace

Array = NDArray[np.floating[Any]]
Colour = tuple[float, float, float]

BACKGROUND, SHAFT, WRIST, CLASPER = range(4)
LABELS = LabelSpace(
    names=("background", "shaft", "wrist", "clasper"),
    colours=((0, 0, 0), (78, 121, 167), (242, 142, 43), (225, 87, 89)),
)
MIN_SIZE = 32


@dataclass(frozen=True)
class Look:
    """What sets one domain apart: tissue, light, instrument finish, and camera."""

    tissue: tuple[Colour, Colour, Colour]  # base, deep (folds, blood), pale (fat, tendon)
    fat: float  # how much of the tissue is pale
    vessel: Colour
    relief: float  # depth of the folds
    grain: float  # strength of the finest texture
    light: Colour
    falloff: float
    wetness: float  # amount of specular highlight on tissue
    shaft: tuple[Colour, float]  # albedo, gloss
    metal: tuple[Colour, float]
    haze: float
    blur: float  # pixels of a 256-pixel-high image
    noise: float


DOMAINS: dict[str, Look] = {
    "source": Look(
        tissue=((0.62, 0.28, 0.24), (0.33, 0.08, 0.08), (0.80, 0.57, 0.45)),
        fat=0.25, vessel=(0.42, 0.07, 0.09), relief=0.085, grain=0.05,
        light=(1.04, 0.99, 0.93), falloff=1.1, wetness=0.8,
        shaft=((0.24, 0.23, 0.24), 0.5), metal=((0.50, 0.48, 0.47), 0.75),
        haze=0.02, blur=0.7, noise=0.016,
    ),
    "target": Look(
        tissue=((0.70, 0.47, 0.34), (0.45, 0.17, 0.13), (0.86, 0.76, 0.52)),
        fat=0.55, vessel=(0.50, 0.20, 0.24), relief=0.06, grain=0.09,
        light=(0.90, 0.97, 1.02), falloff=1.7, wetness=1.3,
        shaft=((0.40, 0.40, 0.42), 0.7), metal=((0.42, 0.41, 0.42), 0.55),
        haze=0.09, blur=1.1, noise=0.028,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Strip:
    """One rigid piece seen from above: a tapered strip along a (possibly bowed) axis; length 0 gives a disc."""

    label: int
    origin: tuple[float, float]
    angle: float
    length: float
    widths: tuple[float, float]  # half-widths at the two ends
    bow: float = 0.0  # sideways bulge of the axis at mid-length
    round_ends: bool = True
    flatness: float = 0.0  # 0 = cylinder, towards 1 = plate with bevelled edges
    finish: str = "metal"  # "shaft", "metal" or "pin"
    window: tuple[float, float] = (0.0, 0.0)  # stretch of the length with a dark slot along the axis

    def box(self, size: tuple[int, int]) -> tuple[slice, slice]:
        """Rows and columns that can hold the strip, to paint no more than needed."""
        margin = max(self.widths) + abs(self.bow)
        ends = (
            self.origin,
            (
                self.origin[0] + self.length * math.cos(self.angle),
                self.origin[1] + self.length * math.sin(self.angle),
            ),
        )
        low_x, low_y = (max(0, int((min(pair) - margin) * size[0])) for pair in zip(*ends, strict=True))
        high_x, high_y = (max(0, math.ceil((max(pair) + margin) * size[0])) for pair in zip(*ends, strict=True))
        return slice(low_y, high_y), slice(low_x, high_x)

    def locate(self, x: Array, y: Array) -> tuple[NDArray[np.bool_], Array, Array]:
        """Which points lie inside, and their place across (-1..1) and along (0..1, beyond it in the caps)."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        dx, dy = x - self.origin[0], y - self.origin[1]
        u = cos * dx + sin * dy
        length = max(self.length, 1e-6)
        t = np.clip(u / length, 0, 1)
        v = cos * dy - sin * dx - 4 * self.bow * t * (1 - t)
        width = self.widths[0] + (self.widths[1] - self.widths[0]) * t
        inside = v**2 + (u - t * length) ** 2 < width**2
        if not self.round_ends:
            inside &= (u >= 0) & (u <= length)
        return inside, np.clip(v / width, -1, 1), u / length


def synthesise(
    index: int, *, size: tuple[int, int] = (256, 320), seed: int = 0, domain: str = "source"
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One scene: image (H, W, 3) and true part labels (H, W); the same arguments always give the same bytes.

    >>> image, mask = synthesise(0, size=(64, 80))
    >>> image.shape, mask.shape, sorted(set(mask.flat)) == [0, 1, 2, 3]
    ((64, 80, 3), (64, 80), True)
    """
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, got {domain!r}")
    if min(size) < MIN_SIZE:
        raise ValueError(f"size must be at least {MIN_SIZE} pixels each way, got {size}")
    if index < 0 or seed < 0:
        raise ValueError(f"index and seed must not be negative, got index={index}, seed={seed}")
    look = DOMAINS[domain]
    rng = np.random.default_rng([seed, index, list(DOMAINS).index(domain)])
    height, width = size
    instruments = _compose(rng, aspect=width / height)
    light_at = (0.5 * width / height + rng.normal(0, 0.1), 0.5 + rng.normal(0, 0.08))

    x, y = _grid(size)
    image = _tissue(rng, look, x, y, light_at)
    mask = np.zeros(size, np.uint8)
    fine_x, fine_y = _grid((2 * height, 2 * width))
    for strips in instruments:
        colour, cover = _paint(rng, look, strips, fine_x, fine_y, tint=image.mean((0, 1)))
        cover_small = _halve(cover)
        image = image * _shadow(rng, cover_small)[..., None]
        image = image * (1 - cover_small[..., None]) + _halve(colour * cover[..., None])
        for strip in strips:
            box = strip.box(size)
            mask[box][strip.locate(x[box], y[box])[0]] = strip.label
    return _camera(rng, look, image, x, y, light_at), mask


def write_dataset(
    out: Path | str,
    *,
    count: int,
    size: tuple[int, int] = (256, 320),
    seed: int = 0,
    domain: str = "source",
    val_fraction: float = 0.15,
    test_fraction: float = 0.25,
) -> Path:
    """Write ``count`` scenes as a folder dataset: images/, masks/ (true labels), split.csv, dataset.yaml."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if not (0 <= val_fraction and 0 <= test_fraction and val_fraction + test_fraction < 1):
        raise ValueError(
            f"val_fraction and test_fraction must leave something to train on, got {val_fraction} and {test_fraction}"
        )
    out = Path(out)
    splits = _splits(count, val_fraction, test_fraction, seed)
    with new_folder(out) as building:
        for folder in ("images", "masks"):
            (building / folder).mkdir()
        for index in range(count):
            image, mask = synthesise(index, size=size, seed=seed, domain=domain)
            name = f"{domain}_{index:04d}.png"
            Image.fromarray(image).save(building / "images" / name)
            Image.fromarray(mask).save(building / "masks" / name)
        with open(building / "split.csv", "w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["name", "split"])
            rows.writerows((f"{domain}_{index:04d}", split) for index, split in enumerate(splits))
        described = {
            "name": f"synthetic-{domain}",
            "classes": list(LABELS.names),
            "colours": [list(colour) for colour in LABELS.colours],
        }
        (building / "dataset.yaml").write_text(yaml.safe_dump(described, sort_keys=False))
    return out


def _splits(count: int, val_fraction: float, test_fraction: float, seed: int) -> list[str]:
    """A seeded split in which every non-zero fraction gets at least one image when there are enough."""
    test = min(max(round(test_fraction * count), int(test_fraction > 0)), count - 1)
    val = min(max(round(val_fraction * count), int(val_fraction > 0)), count - 1 - test)
    names = np.array(["test"] * test + ["val"] * val + ["train"] * (count - test - val))
    return [str(name) for name in np.random.default_rng([seed, count]).permutation(names)]


# --- geometry -------------------------------------------------------------------------------------------------------


def _grid(size: tuple[int, int]) -> tuple[Array, Array]:
    """Pixel centres in units of the image height."""
    height, width = size
    y, x = np.mgrid[:height, :width].astype(np.float32)
    return (x + 0.5) / height, (y + 0.5) / height


def _compose(rng: np.random.Generator, *, aspect: float) -> list[list[Strip]]:
    """One or two instruments that reach from the border towards the middle, far one first."""
    sides = rng.permutation([math.pi, 0.0]) + rng.normal(0, 0.35, 2)
    if rng.random() < 0.3:  # from below, as when the endoscope looks along the arm
        sides[0] = math.pi / 2 + rng.normal(0, 0.4)
    instruments = []
    for side in sides[: 1 if rng.random() < 0.35 else 2]:
        outward = np.array([math.cos(side), math.sin(side)])
        tip = np.array([aspect / 2, 0.5]) - 0.08 * outward + rng.normal(0, 0.10, 2)
        instruments.append(_instrument(rng, tip, heading=side + math.pi + rng.normal(0, 0.15)))
    return instruments


def _instrument(rng: np.random.Generator, tip: NDArray[np.float64], heading: float) -> list[Strip]:
    """The strips of one instrument in painting order: jaws, then the wrist that holds them, then the shaft."""
    width = rng.uniform(0.078, 0.106)
    bend_1, bend_2 = rng.normal(0, 0.30), rng.normal(0, 0.35)
    link_1, link_2 = width * rng.uniform(0.65, 0.95), width * rng.uniform(0.45, 0.75)
    jaw, opening = width * rng.uniform(2.7, 3.8), rng.uniform(0.05, 0.8)
    window = (0.25, 0.7) if rng.random() < 0.6 else (0.0, 0.0)  # fenestrated or plain jaws

    def ahead(point: NDArray[np.float64], angle: float, distance: float) -> NDArray[np.float64]:
        return point + distance * np.array([math.cos(angle), math.sin(angle)])

    shaft_end = ahead(ahead(tip, heading + bend_1 + bend_2, -jaw), heading + bend_1, -link_1 - link_2)
    joint = ahead(shaft_end, heading + bend_1, link_1)
    hinge = ahead(joint, heading + bend_1 + bend_2 / 2, link_2)

    def at(point: NDArray[np.float64]) -> tuple[float, float]:
        return float(point[0]), float(point[1])

    strips = []
    thickness, hook = width * rng.uniform(0.38, 0.52), rng.uniform(0.04, 0.10)
    for sign in rng.permutation([-1, 1]):
        angle = heading + bend_1 + bend_2 + sign * opening / 2
        strips.append(
            Strip(CLASPER, at(hinge), angle, jaw, (thickness, 0.42 * thickness), sign * hook * jaw,
                  flatness=0.5, window=window)
        )  # fmt: skip
    strips += [
        Strip(WRIST, at(joint), heading + bend_1 + bend_2 / 2, link_2, (0.74 * width, 0.54 * width), flatness=0.6),
        Strip(WRIST, at(hinge), 0, 0, (0.20 * width, 0.20 * width), finish="pin"),
        Strip(WRIST, at(shaft_end), heading + bend_1, link_1, (0.90 * width, 0.72 * width), flatness=0.4,
              window=(0.3, 0.75)),
        Strip(WRIST, at(joint), 0, 0, (0.26 * width, 0.26 * width), finish="pin"),
        Strip(SHAFT, at(ahead(shaft_end, heading, -3)), heading, 3, (2.6 * width, width),
              round_ends=False, finish="shaft"),
    ]  # fmt: skip
    return strips


# --- paint ----------------------------------------------------------------------------------------------------------


def _halve(array: Array) -> Array:
    """Mean of 2 x 2 blocks."""
    height, width = array.shape[:2]
    return array.reshape(height // 2, 2, width // 2, 2, *array.shape[2:]).mean((1, 3))


def _clouds(rng: np.random.Generator, size: tuple[int, int], cells: float, *, octaves: int = 4) -> Array:
    """Smooth noise of zero mean and unit deviation: random grids of ``cells`` per height, each octave twice finer."""
    height, width = size
    field = np.zeros(size, np.float32)
    for octave in range(octaves):
        rows = max(2, round(cells * 2**octave))
        coarse = rng.standard_normal((rows, max(2, round(rows * width / height)))).astype(np.float32)
        fine = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        field += 0.5**octave * np.asarray(fine)
    return (field - field.mean()) / (field.std() + 1e-6)


def _blend(below: Array, colour: Colour, amount: Array) -> Array:
    amount = np.clip(amount, 0, 1)[..., None]
    return below * (1 - amount) + np.asarray(colour, np.float32) * amount


def _vessels(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    """Soft map of branching vessels, drawn as wandering lines that thin out."""
    height, width = size
    canvas = Image.new("L", (2 * width, 2 * height))
    draw = ImageDraw.Draw(canvas)
    step = 0.022 * 2 * height
    twigs = [
        (rng.uniform(0, 2 * width), rng.uniform(0, 2 * height), rng.uniform(0, 2 * math.pi), rng.uniform(0.006, 0.016))
        for _ in range(rng.integers(3, 7))
    ]
    while twigs:
        x, y, angle, thickness = twigs.pop()
        turn = 0.0
        while thickness > 0.0022:
            turn = 0.7 * turn + rng.normal(0, 0.16)
            angle += turn
            next_x, next_y = x + step * math.cos(angle), y + step * math.sin(angle)
            pixels = thickness * 2 * height
            draw.line((x, y, next_x, next_y), fill=255, width=max(1, round(pixels)))
            x, y = next_x, next_y
            thickness *= 0.965
            if rng.random() < 0.07 and len(twigs) < 12:
                twigs.append((x, y, angle + rng.choice([-1, 1]) * rng.uniform(0.4, 0.9), thickness * 0.7))
    soft = gaussian_filter(_halve(np.asarray(canvas, np.float32) / 255), 0.004 * height)
    return np.asarray(soft, np.float32)


def _tissue(rng: np.random.Generator, look: Look, x: Array, y: Array, light_at: tuple[float, float]) -> Array:
    """Wet folded tissue under a light beside the camera: colour by mixed clouds, form by a lit height field."""
    size = (x.shape[0], x.shape[1])
    base, deep, pale = look.tissue
    bend = _clouds(rng, size, 1.5, octaves=3)
    direction = rng.uniform(0, math.pi)
    along = x * math.cos(direction) + y * math.sin(direction)
    wave = np.sin(2 * math.pi * along * rng.uniform(0.8, 1.8) + 1.3 * bend + rng.uniform(0, 6))
    fading = np.clip(0.6 + 0.5 * _clouds(rng, size, 1.5, octaves=1), 0, 1)
    folds = np.exp(-((wave / 0.35) ** 2)) * fading  # soft valleys between lobes, running out here and there
    lumps, grain = _clouds(rng, size, 3.0, octaves=3), _clouds(rng, size, 28.0, octaves=2)
    vessels = _vessels(rng, size)

    colour = np.broadcast_to(np.asarray(base, np.float32), (*size, 3)) * (1 + 0.10 * bend[..., None])
    fat_line = np.quantile(lumps + 0.5 * grain, 1 - look.fat)
    colour = _blend(colour, pale, 0.8 / (1 + np.exp(-4 * (lumps + 0.35 * grain - fat_line))))
    colour = _blend(colour, deep, 0.55 * folds**2 + 0.3 * np.clip(_clouds(rng, size, 2.5) - 0.8, 0, 1))
    fascia = 0.75 * np.clip(_clouds(rng, size, 2.0) - 0.6, 0, 1)[..., None]  # greyish membrane, pale as steel
    colour = colour * (1 - fascia) + fascia * (0.12 + colour.mean(-1, keepdims=True))
    colour = _blend(colour, look.vessel, 0.7 * vessels)
    colour = colour * (1 + look.grain * grain[..., None])

    # heights in image-height units; gradients are slopes
    relief = look.relief * (-0.6 * folds + 0.40 * lumps + 0.012 * grain + 0.10 * vessels)
    slope_y, slope_x = np.gradient(gaussian_filter(relief, 0.006 * size[0]), 1 / size[0])
    to_x, to_y = 0.55 * (light_at[0] - x), 0.55 * (light_at[1] - y)
    norm = np.sqrt(1 + slope_x**2 + slope_y**2)
    facing = (1 - slope_x * to_x - slope_y * to_y) / (norm * np.sqrt(1 + to_x**2 + to_y**2))
    shade = np.clip(0.25 + 0.85 * facing, 0.1, 1.2) * (1 - 0.3 * folds**2)
    ripple = 0.011 * np.asarray(np.gradient(_clouds(rng, size, 9.0, octaves=2), 1 / size[0]), np.float32)
    glance = (to_x - slope_x - ripple[1]) ** 2 + (to_y - slope_y - ripple[0]) ** 2
    wet = np.clip(0.4 + _clouds(rng, size, 3.0, octaves=2), 0, 1.3)
    gloss = look.wetness * wet * (np.exp(-glance / 0.004) + 0.16 * np.exp(-glance / 0.05))
    return colour * shade[..., None] + gloss[..., None] * np.asarray((1.0, 0.97, 0.94), np.float32)


def _paint(
    rng: np.random.Generator, look: Look, strips: list[Strip], x: Array, y: Array, *, tint: Array
) -> tuple[Array, Array]:
    """Colour (H, W, 3) and cover (H, W) of one instrument; metal mirrors a little of the tissue's mean colour."""
    colour = np.zeros((*x.shape, 3), np.float32)
    cover = np.zeros(x.shape, np.float32)
    smear = _clouds(rng, (x.shape[0], x.shape[1]), 5.0, octaves=3)  # blood and fluid on the instrument
    glint, wear = rng.uniform(-0.45, 0.1), rng.uniform(0.65, 1.35)  # no two instruments shine alike
    for strip in strips:
        box = strip.box((x.shape[0], x.shape[1]))
        inside, across, along = strip.locate(x[box], y[box])
        s, t, dirt = across[inside], along[inside], smear[box][inside]
        edge = np.clip((np.abs(s) - strip.flatness) / (1 - strip.flatness), 0, 1)
        albedo, gloss = look.shaft if strip.finish == "shaft" else look.metal
        base = np.broadcast_to(wear * np.asarray(albedo, np.float32), (len(s), 3))
        if strip.finish == "shaft":  # a metal collar at the end of the tube, and a dark gap before it
            to_end = (1 - t[:, None]) * strip.length / strip.widths[1]
            base = np.where(to_end < 0.42, wear * np.asarray(look.metal[0], np.float32), base)
            base = np.where(np.abs(to_end - 0.50) < 0.08, 0.35 * base, base)
        streaks = np.interp(s * 40 + 60 * t * (strip.finish != "shaft"), np.arange(-45, 125), rng.normal(0, 1, 170))
        shade = (0.22 + 0.78 * np.sqrt(1 - edge**2)) * (1 + 0.05 * streaks)
        mirror = 0.35 * gloss * np.exp(-(((np.abs(s) - 0.72) / 0.16) ** 2))
        line = np.exp(-(((s - glint) / (0.12 if strip.finish == "shaft" else 0.28)) ** 2))
        shine = gloss * np.clip(0.6 + 0.3 * dirt, 0, 1) * line
        lit = base * shade[:, None] + mirror[:, None] * tint + shine[:, None]
        if strip.finish == "pin":
            lit = lit * np.where(t > 0, 1.15, 0.6)[:, None]
        slot = (t > strip.window[0]) & (t < strip.window[1]) & (np.abs(s) < 0.34)
        lit = np.where(slot[:, None], 0.16 * base + 0.12 * tint, lit)
        stain = 0.6 * np.clip(dirt - 0.8, 0, 1)[:, None]
        lit = lit * (1 - stain) + stain * np.asarray(look.tissue[1], np.float32)
        colour[box][inside] = lit * np.where(np.abs(s) > 0.9, 0.55, 1.0)[:, None]
        cover[box][inside] = 1
    return colour, cover


def _shadow(rng: np.random.Generator, cover: Array) -> Array:
    """How much light the instrument leaves on what lies below it: a blurred, shifted copy and a contact shadow."""
    height = cover.shape[0]
    shift = (round(height * rng.uniform(0.02, 0.07)), round(height * rng.uniform(-0.05, 0.05)))
    cast = gaussian_filter(np.roll(cover, shift, (0, 1)), 0.022 * height)
    contact = gaussian_filter(cover, 0.03 * height)
    return np.asarray(1 - rng.uniform(0.45, 0.65) * np.maximum(cast, 0.6 * contact), np.float32)


def _camera(
    rng: np.random.Generator, look: Look, image: Array, x: Array, y: Array, light_at: tuple[float, float]
) -> NDArray[np.uint8]:
    """Light fall-off, haze, focus, sensor noise and tone curve."""
    height = image.shape[0]
    distance = (x - light_at[0]) ** 2 + (y - light_at[1]) ** 2
    light = rng.uniform(0.95, 1.2) / (1 + look.falloff * distance)
    image = image * light[..., None] * np.asarray(look.light, np.float32)
    veil = look.haze * np.clip(1 + 0.6 * _clouds(rng, (image.shape[0], image.shape[1]), 1.5, octaves=2), 0, 3)
    image = image * (1 - veil[..., None]) + 0.75 * veil[..., None]
    image = gaussian_filter(image, (*[look.blur * rng.uniform(0.7, 1.3) * height / 256] * 2, 0))
    noise = rng.standard_normal(image.shape).astype(np.float32)
    image = image + look.noise * np.sqrt(np.clip(image, 0.02, 1)) * noise
    return (255 * np.clip(image, 0, 1) ** 0.9).round().astype(np.uint8)
