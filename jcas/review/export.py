"""Write the dataset as the reviewers left it: corrected masks, the decisions, and a table of what changed.

Pixels of accepted regions take the repaired label, painted pixels the painted one, all others stay as given; an
image that nobody decided about stays as it is, and so does one that was not audited. **Untrusted images are left out
of the export, whatever their split**: their masks are fit neither for training nor for scoring. A volume cannot lose
a slice, so an untrusted slice keeps its place with every label set to 255 (ignored); a volume all of whose slices are
untrusted is left out.

Weights (trust per pixel) speak of the old labels: an image or volume with a changed pixel is exported without its
weights, that is fully trusted; all others keep theirs.

The masks of the dataset must still be those that were audited; otherwise nothing is written.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from rich.progress import track

from jcas.data import files
from jcas.data.dataset import SPLITS, Dataset, FileReader, Record
from jcas.data.new_folder import expect_no_files, new_folder
from jcas.review.audit import Audit, AuditedImage, read_audit
from jcas.review.coco import annotate
from jcas.review.decisions import Decisions, open_decisions, status
from jcas.review.source import open_source, source_mask
from jcas.schema import IGNORE
from jcas.version import __version__

Format = Literal["folder", "coco", "nifti"]
FORMATS: tuple[Format, ...] = ("folder", "coco", "nifti")

Mask = NDArray[np.uint8]


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    folder: Path
    images: int
    changed_images: int
    changed_pixels: int
    left_out: int
    unreviewed: int


def export_review(
    audit_dir: Path | str, out: Path | str, *, format: Format = "folder", data: Path | None = None
) -> Exported:
    """Write the corrected dataset.

    Args:
        audit_dir: of `jcas audit`, with the decisions of `jcas review`.
        out: a folder that does not exist or is empty.
        format: ``folder``: the layout of `jcas.data.folder` (volumes stay volumes); ``nifti``: the same, and refuse
            a dataset of flat images; ``coco``: images/ and annotations/{train,val,test}.json with run lengths.
        data: where the dataset lies now, if not where it was audited.
    """
    out = Path(out)
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}, choose one of {', '.join(FORMATS)}")
    expect_no_files(out)
    audit = read_audit(audit_dir)
    decisions = open_decisions(audit, write=False)
    dataset = open_source(audit, data)
    if format == "nifti" and any(record.slice_index is None for record in dataset.records):
        raise ValueError(f"{dataset.root}: holds flat images, NIfTI needs volumes (use --format folder or coco)")
    return _Export(audit, decisions, dataset, format).write(out)


@dataclass(frozen=True)
class _Export:
    audit: Audit
    decisions: Decisions
    dataset: Dataset
    format: Format

    def write(self, out: Path) -> Exported:
        audited = {image.id: image for image in self.audit.images}
        untrusted = {image.id for image in self.audit.images if self.decisions.state(image).untrusted}
        groups: dict[str, list[Record]] = {}
        for record in self.dataset.records:
            groups.setdefault(_name(record), []).append(record)
        kept = {
            name: records for name, records in groups.items() if not all(record.id in untrusted for record in records)
        }
        if not kept:
            raise ValueError(f"{self.audit.root}: every image is marked untrusted, nothing to export")
        splits = {image.id: image.split for image in self.audit.images}
        changes: list[tuple[str, str, str, int]] = []
        cards: list[dict[str, Any]] = []
        with new_folder(out) as building:
            (building / "images").mkdir()
            # All groups are read, also those left out: a mask that changed must not go unnoticed.
            for name, records in track(groups.items(), "exporting", transient=True, disable=len(groups) < 50):
                masks = []
                before = len(changes)
                for record in records:
                    given, mask = self._masks(record, audited.get(record.id))
                    if record.id not in untrusted:
                        changes += self._changes(record.id, given, mask)
                    elif record.slice_index is not None:
                        mask = np.full_like(mask, IGNORE)
                    masks.append(mask)
                split = next((splits[r.id] for r in records if r.id in splits), records[0].split)
                if name in kept and self.format == "coco":
                    cards += self._write_pictures(building, records, masks, split, untrusted)
                elif name in kept:
                    self._write_files(building, name, records, masks, weights=len(changes) == before)
                    cards.append({"name": name, "split": split, "group": records[0].group})
            if self.format == "coco":
                self._write_coco(building, cards)
            else:
                self._write_description(building, cards, {r.id for records in kept.values() for r in records})
            self._write_decisions(building)
            _write_table(building / "changes.csv", ("image", "from", "to", "pixels"), changes)
        states = [status(self.decisions.state(image), image.regions) for image in self.audit.images]
        return Exported(
            folder=out,
            images=sum(len(records) for records in kept.values()),
            changed_images=len({image for image, *_ in changes}),
            changed_pixels=sum(pixels for *_, pixels in changes),
            left_out=len(untrusted),
            unreviewed=sum(state in ("open", "partly") for state in states),
        )

    def _masks(self, record: Record, image: AuditedImage | None) -> tuple[Mask, Mask]:
        """The mask as it is in the dataset and as it shall be."""
        source = source_mask(self.dataset, record, image)
        if image is None:
            return source, source
        if not np.array_equal(self.audit.labels("given", image), source):
            raise ValueError(f"{self.audit.file('given', image)}: is not the mask that was audited")
        return source, self.decisions.result(image)

    def _changes(self, name: str, given: Mask, mask: Mask) -> list[tuple[str, str, str, int]]:
        pairs, pixels = np.unique(given[given != mask].astype(np.int64) * 256 + mask[given != mask], return_counts=True)
        classes = self.audit.classes

        def title(label: int) -> str:
            return classes[label] if label < len(classes) else "ignored"

        return [
            (name, title(pair // 256), title(pair % 256), count)
            for pair, count in zip(pairs.tolist(), pixels.tolist(), strict=True)
        ]

    def _write_files(self, root: Path, name: str, records: list[Record], masks: list[Mask], *, weights: bool) -> None:
        first = records[0]
        plain = isinstance(self.dataset.reader, FileReader)  # other readers crop or resize: store what they give
        if plain:
            _link(first.image, root / "images" / f"{name}{_suffix(first.image)}")
        else:
            files.write_image(root / "images" / f"{name}.png", self.dataset.load(first, clean=False).image)
        if first.weight is not None and weights:
            (root / "weights").mkdir(exist_ok=True)
            _link(first.weight, root / "weights" / f"{name}{_suffix(first.weight)}")
        self._write_mask(root / "masks", name, first, masks)
        if first.clean is not None and first.clean != first.noisy:
            truths = [self.dataset.load(record, clean=True).clean for record in records]
            self._write_mask(root / "clean", name, first, [np.asarray(truth) for truth in truths])

    def _write_mask(self, folder: Path, name: str, first: Record, masks: list[Mask]) -> None:
        folder.mkdir(exist_ok=True)
        if first.slice_index is None:
            files.write_mask(folder / f"{name}.png", masks[0])
        else:
            target = folder / f"{name}{_suffix(first.image)}"
            files.write_mask(target, np.stack(masks, axis=-1), like=first.noisy or first.image)

    def _write_description(self, root: Path, cards: list[dict[str, Any]], ids: set[str]) -> None:
        rows = [(card["name"], card["split"], card["group"]) for card in cards]
        _write_table(root / "split.csv", ("name", "split", "group"), rows)
        described: dict[str, Any] = {
            "name": self.dataset.name,
            "classes": list(self.dataset.labels.names),
            "colours": [list(colour) for colour in self.dataset.labels.colours],
        }
        if self.dataset.trusted & ids:
            described["trusted"] = sorted(self.dataset.trusted & ids)
        if self.dataset.intensity is not None and isinstance(self.dataset.reader, FileReader):
            described["intensity"] = list(self.dataset.intensity)
        text = yaml.safe_dump(described, sort_keys=False, allow_unicode=True)
        (root / "dataset.yaml").write_text(text, encoding="utf-8")

    def _write_pictures(
        self, root: Path, records: list[Record], masks: list[Mask], split: str, untrusted: set[str]
    ) -> list[dict[str, Any]]:
        """COCO knows flat pictures only: slices become pictures of their own, untrusted ones are left out."""
        cards = []
        for record, mask in zip(records, masks, strict=True):
            if record.id in untrusted:
                continue
            plain = isinstance(self.dataset.reader, FileReader) and record.slice_index is None
            name = f"{record.id}{_suffix(record.image) if plain else '.png'}"
            if plain:
                _link(record.image, root / "images" / name)
            else:
                files.write_image(root / "images" / name, self.dataset.load(record, clean=False).image)
            # Run lengths are small; the masks themselves of a whole dataset would not fit the memory.
            found = annotate(mask, image=0, labels=self._categories(), first=0)
            height, width = mask.shape
            cards.append({"name": name, "split": split, "size": (height, width), "annotations": found})
        return cards

    def _categories(self) -> dict[int, str]:
        return dict(enumerate(self.audit.classes[1:], start=1)) | {IGNORE: "ignored"}

    def _write_coco(self, root: Path, cards: list[dict[str, Any]]) -> None:
        (root / "annotations").mkdir()
        categories = [{"id": label, "name": name} for label, name in self._categories().items()]
        number = 0
        for split in SPLITS:
            images: list[dict[str, Any]] = []
            found: list[dict[str, Any]] = []
            for card in cards:
                if card["split"] != split:
                    continue
                number += 1
                height, width = card["size"]
                images.append({"id": number, "file_name": card["name"], "height": height, "width": width})
                for annotation in card["annotations"]:
                    found.append(annotation | {"id": len(found) + 1, "image_id": number})
            if images:
                info = {"description": f"{self.dataset.name}, reviewed with jcas {__version__}"}
                content = {"info": info, "images": images, "annotations": found, "categories": categories}
                (root / "annotations" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")

    def _write_decisions(self, root: Path) -> None:
        images = {}
        for image in self.audit.images:
            if not self.decisions.revision(image):
                continue
            state = self.decisions.state(image)
            images[image.id] = {
                "status": status(state, image.regions),
                "verdict": {True: "accept", False: "reject", None: None}[state.verdict],
                "regions": {str(k): "accept" if v else "reject" for k, v in sorted(state.regions.items())},
                "untrusted": state.untrusted,
                "painted": state.painted is not None,
                "revision": self.decisions.revision(image),
            }
        content = {
            "format": "1",
            "version": __version__,
            "dataset": self.audit.dataset,
            "audit": self.audit.created,
            "images": images,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (root / "decisions.json").write_text(text, encoding="utf-8")


def _name(record: Record) -> str:
    """Name of the files of a record, without suffix; the slices of a volume share it."""
    return record.id if record.slice_index is None else record.id.rpartition("#")[0]


def _suffix(path: Path) -> str:
    return path.name[len(files.stem(path)) :]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or a file system without hard links
        shutil.copyfile(source, target)


def _write_table(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)
