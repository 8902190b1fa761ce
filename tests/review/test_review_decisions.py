"""Decisions: what they mean for the mask, and that nothing said is ever lost."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from audit_folder import make_audit
from PIL import Image

from jcas.review.audit import Audit, AuditedImage, read_audit
from jcas.review.decisions import UNPAINTED, Decisions, StaleRevisionError, State, open_decisions, status


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return read_audit(make_audit(tmp_path))


@pytest.fixture
def decisions(audit: Audit):
    opened = open_decisions(audit, write=True)
    yield opened
    opened.close()


def layers(audit: Audit, image: AuditedImage) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Given, repaired and regions, straight from the files."""
    return tuple(np.array(Image.open(audit.root / f / f"{image.id}.png")) for f in ("given", "repaired", "regions"))


def reopened(audit: Audit, decisions: Decisions) -> Decisions:
    decisions.close()
    return open_decisions(audit, write=False)


def lines(audit: Audit) -> list[dict]:
    return [json.loads(line) for line in (audit.root / "decisions.jsonl").read_text("utf-8").splitlines()]


def test_the_result_is_given_until_someone_decides(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    given, repaired, _ = layers(audit, image)
    assert (given != repaired).any()
    assert np.array_equal(decisions.result(image), given)


def test_accept_takes_the_repair_and_reject_the_given_mask(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    given, repaired, _ = layers(audit, image)
    decisions.decide(image, "accept", revision=0)
    assert np.array_equal(decisions.result(image), repaired)
    decisions.decide(image, "reject", revision=1)
    assert np.array_equal(decisions.result(image), given)


def test_a_region_is_judged_alone_and_wins_over_the_verdict(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    given, repaired, regions = layers(audit, image)
    assert image.regions == set(np.unique(regions)) - {0} and len(image.regions) >= 3
    decisions.decide(image, "accept_region", revision=0, region=2)
    assert np.array_equal(decisions.result(image), np.where(regions == 2, repaired, given))
    decisions.decide(image, "accept", revision=1)
    decisions.decide(image, "reject_region", revision=2, region=1)
    assert np.array_equal(decisions.result(image), np.where(regions == 1, given, repaired))
    decisions.decide(image, "clear_region", revision=3, region=1)
    assert np.array_equal(decisions.result(image), repaired)


def test_paint_lies_on_top_and_later_strokes_on_earlier_ones(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    _, repaired, _ = layers(audit, image)
    patch = np.full((4, 5), 2, np.uint8)
    patch[0, 0] = UNPAINTED
    decisions.paint(image, patch, top=10, left=20, revision=0)
    decisions.paint(image, np.full((1, 2), 0, np.uint8), top=11, left=21, revision=1)
    decisions.decide(image, "accept", revision=2)
    expected = repaired.copy()
    expected[10:14, 20:25] = 2
    expected[10, 20] = repaired[10, 20]
    expected[11, 21:23] = 0
    assert np.array_equal(decisions.result(image), expected)


@pytest.mark.parametrize(
    ("patch", "top", "left", "reason"),
    [
        (np.full((2, 2), 3, np.uint8), 0, 0, "3 is no class"),
        (np.zeros((2, 2), np.uint8), 39, 0, "does not lie in the image"),
        (np.zeros((2, 2), np.uint8), 0, -1, "does not lie in the image"),
        (np.zeros((0, 2), np.uint8), 0, 0, "does not lie in the image"),
    ],
)
def test_wrong_paint_is_refused_and_leaves_nothing(audit: Audit, decisions: Decisions, patch, top, left, reason):
    with pytest.raises(ValueError, match=reason):
        decisions.paint(audit.images[0], patch, top=top, left=left, revision=0)
    assert len(lines(audit)) == 1 and not list((audit.root / "painted").iterdir())


def test_undo_goes_back_step_by_step_after_reopening_too(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    results = [decisions.result(image)]
    decisions.decide(image, "accept_region", revision=0, region=1)
    results.append(decisions.result(image))
    decisions.paint(image, np.full((3, 3), 2, np.uint8), top=0, left=5, revision=1)
    results.append(decisions.result(image))
    decisions.paint(image, np.full((3, 3), 1, np.uint8), top=1, left=6, revision=2)
    for revision, expected in zip((3, 4, 5), reversed(results), strict=True):
        decisions.close()
        decisions = open_decisions(audit, write=True)
        decisions.decide(image, "undo", revision=revision)
        assert np.array_equal(decisions.result(image), expected)
    assert not decisions.can_undo(image)
    with pytest.raises(ValueError, match="nothing to undo"):
        decisions.decide(image, "undo", revision=6)
    assert decisions.revision(image) == 6
    decisions.close()


def test_stale_revision_is_refused_and_not_written(audit: Audit, decisions: Decisions):
    first, second = audit.images[:2]
    decisions.decide(first, "accept", revision=0)
    with pytest.raises(StaleRevisionError, match="changed meanwhile"):
        decisions.decide(first, "reject", revision=0)
    with pytest.raises(StaleRevisionError):
        decisions.paint(first, np.zeros((2, 2), np.uint8), top=0, left=0, revision=0)
    decisions.decide(second, "reject", revision=0)  # another image has its own count
    assert [line.get("action") for line in lines(audit)] == [None, "accept", "reject"]


def test_torn_last_line_is_dropped_and_the_next_decision_is_whole(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    decisions.decide(image, "accept", revision=0)
    decisions.close()
    log = audit.root / "decisions.jsonl"
    whole = log.read_bytes()
    for cut in (1, 20, len(b'{"image"')):
        log.write_bytes(whole + b'{"image": "a", "revision": 2, "act'[:cut])
        assert open_decisions(audit, write=False).state(image).verdict is True
    decisions = open_decisions(audit, write=True)
    decisions.decide(image, "untrusted", revision=1)
    again = reopened(audit, decisions)
    assert again.state(image) == State(verdict=True, untrusted=True)
    assert log.read_bytes().startswith(whole)


def test_damaged_line_is_named_and_the_log_left_alone(audit: Audit, decisions: Decisions):
    decisions.decide(audit.images[0], "accept", revision=0)
    decisions.decide(audit.images[1], "accept", revision=0)
    decisions.close()
    log = audit.root / "decisions.jsonl"
    damaged = log.read_bytes().replace(b'"revision": 1', b'"revision": 7', 1)
    log.write_bytes(damaged)
    for write in (False, True):
        with pytest.raises(ValueError, match=r"decisions.jsonl, line 2: damaged"):
            open_decisions(audit, write=write)
    assert log.read_bytes() == damaged


def test_painted_name_in_the_log_cannot_leave_the_folder(audit: Audit, decisions: Decisions):
    decisions.close()
    with (audit.root / "decisions.jsonl").open("a") as log:
        log.write('{"image": "a", "revision": 1, "action": "paint", "painted": "../given/a.png"}\n')
    with pytest.raises(ValueError, match="line 2: damaged"):
        open_decisions(audit, write=False)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", ["decisions.jsonl", "painted"])
def test_links_out_of_the_audit_folder_are_not_written_through(audit: Audit, tmp_path: Path, name: str, there: bool):
    outside = tmp_path / "outside"
    if there:
        outside.mkdir() if name == "painted" else outside.write_text("precious\n")
    (audit.root / name).symlink_to(outside)
    with pytest.raises(ValueError, match=f"{name}: leads out of the audit folder"):
        open_decisions(audit, write=True)
    assert outside.exists() == there
    if there:
        assert not list(outside.iterdir()) if name == "painted" else outside.read_text() == "precious\n"
    assert [path.name for path in audit.root.iterdir() if path.name in ("decisions.jsonl", "painted")] == [name]


def test_log_that_is_a_link_within_the_folder_is_refused_too(audit: Audit):
    (audit.root / "decisions.jsonl").symlink_to(audit.root / "audit.json")
    with pytest.raises(ValueError, match="is a link"):
        open_decisions(audit, write=True)
    assert json.loads((audit.root / "audit.json").read_text())["format"]


def test_painted_folder_swapped_for_a_link_gets_no_stroke(audit: Audit, decisions: Decisions, tmp_path: Path):
    outside = tmp_path / "outside"
    (audit.root / "painted").rename(outside)
    (audit.root / "painted").symlink_to(outside)
    with pytest.raises(ValueError, match="leads out of the audit folder"):
        decisions.paint(audit.images[0], np.ones((2, 2), np.uint8), top=0, left=0, revision=0)
    assert not list(outside.iterdir()) and len(lines(audit)) == 1


def test_full_disk_loses_the_new_decision_only(audit: Audit, decisions: Decisions):
    image = audit.images[0]
    decisions.decide(image, "accept", revision=0)
    log = audit.root / "decisions.jsonl"
    size = log.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # the kernel writes ten bytes, then refuses
    try:
        with pytest.raises(OSError):
            decisions.decide(image, "reject", revision=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.stat().st_size == size and decisions.state(image).verdict is True
    decisions.decide(image, "untrusted", revision=1)
    assert reopened(audit, decisions).state(image).untrusted


def test_second_writer_is_refused(audit: Audit, decisions: Decisions):
    with pytest.raises(ValueError, match="another `jcas review`"):
        open_decisions(audit, write=True)
    decisions.decide(audit.images[0], "accept", revision=0)
    assert open_decisions(audit, write=False).state(audit.images[0]).verdict is True  # reading is always possible


def test_decisions_about_another_audit_are_refused(audit: Audit, decisions: Decisions):
    decisions.close()
    about = json.loads((audit.root / "audit.json").read_text())
    (audit.root / "audit.json").write_text(json.dumps(about | {"created": "2027-01-01T00:00:00+00:00"}))
    with pytest.raises(ValueError, match="another audit"):
        open_decisions(read_audit(audit.root), write=True)


def test_read_only_folder_is_named(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("readonly")
    audit = read_audit(make_audit(folder))
    audit.root.chmod(0o555)
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o055)
    was_root = os.geteuid() == 0  # root may write anywhere: be nobody for a moment
    if was_root:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=r"decisions\.jsonl"):
            open_decisions(audit, write=True)
    finally:
        if was_root:
            os.seteuid(0)
        audit.root.chmod(0o755)


def test_status_tells_reviewed_from_open():
    both = (1, 2)
    assert status(State(), both) == "open" == status(State(), ())
    assert status(State(regions={1: True}), both) == "partly"
    assert status(State(painted="x"), both) == "partly"
    assert status(State(painted="x"), ()) == "edited"
    assert status(State(regions={1: True, 2: True}), both) == "accepted" == status(State(verdict=True), ())
    assert status(State(verdict=False), both) == "rejected"
    assert status(State(verdict=True, regions={1: False}), both) == "edited"
    assert status(State(verdict=True, untrusted=True), both) == "untrusted"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda root: (root / "audit.json").unlink(), "not a finished audit folder"),
        (lambda root: (root / "audit.json").write_text("{"), "not JSON"),
        (lambda root: (root / "audit.json").write_text("{}"), "no 'format'"),
        (lambda root: (root / "issues.csv").write_text("image,region\n"), "issues.csv: no column"),
        (lambda root: (root / "images.jsonl").unlink(), r"no images\.jsonl"),
        (lambda root: (root / "images.jsonl").write_text('{"id": "../../etc/passwd"}\n'), "is no file name"),
        (lambda root: (root / "images.jsonl").write_text('{"id": "a"}\n'), "not the images of an audit"),
        (lambda root: (root / "images.jsonl").write_text(""), "no images"),
    ],
)
def test_damaged_audit_folder_is_refused_in_one_line(tmp_path: Path, spoil, reason):
    root = make_audit(tmp_path, ["a"])
    spoil(root)
    with pytest.raises(ValueError, match=reason) as caught:
        read_audit(root)
    assert "\n" not in str(caught.value)
