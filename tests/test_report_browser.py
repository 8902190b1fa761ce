"""The reports as their reader opens them: from the disk, in real Chromium, without any network."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from test_report import write_run
from test_report_audit import HOSTILE, finish

from jcas.report import build_audit_report, build_report

sys.path.insert(0, str(Path(__file__).parent / "review"))

from audit_folder import make_audit
from browser import BACKGROUNDS, background, chromium, complaints, prefer, requested


def test_report_opens_from_disk_with_no_request_and_no_complaint(tmp_path: Path):
    runs = [write_run(tmp_path / name, quality=quality) for name, quality in (("baseline", 0.2), ("jcas", 0.9))]
    page = build_report(runs, tmp_path / "report.html")
    with chromium() as browser:
        browser.get(page.as_uri())
        assert browser.find_element(By.TAG_NAME, "h1").is_displayed()
        browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
        pictures = "return [...document.querySelectorAll('canvas, img, svg')].length"
        assert browser.execute_script(pictures) > 3
        browser.find_element(By.ID, "theme").click()
        asked = [address for address in requested(browser) if not address.startswith(("data:", "blob:", "about:"))]
        assert asked == [page.as_uri()]
        assert complaints(browser) == []


def test_dark_and_light_follow_the_system_until_the_button_is_pressed(tmp_path: Path):
    page = build_audit_report(finish(make_audit(tmp_path, ("a",))), tmp_path / "audit.html")
    with chromium() as browser:
        prefer(browser, "dark")
        browser.get(page.as_uri())
        button = browser.find_element(By.ID, "theme")
        assert button.text == "Auto" and background(browser) == BACKGROUNDS["dark"]
        prefer(browser, "light")
        assert background(browser) == BACKGROUNDS["light"]
        button.click()
        prefer(browser, "dark")
        assert button.text == "Light" and background(browser) == BACKGROUNDS["light"]
        button.click()
        prefer(browser, "light")
        assert button.text == "Dark" and background(browser) == BACKGROUNDS["dark"]
        button.click()
        assert button.text == "Auto" and background(browser) == BACKGROUNDS["light"]
        assert complaints(browser) == []


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_report_of_many_different_images_stays_small_and_opens_its_last_page(tmp_path: Path, count: int):
    folder = make_audit(tmp_path, ("a",), size=(16, 16))
    line = json.loads((folder / "images.jsonl").read_text())
    names = [f"image{number:04d}" for number in range(count)]
    (folder / "images.jsonl").write_text("".join(json.dumps({**line, "id": name}) + "\n" for name in names))
    rng = np.random.default_rng(0)
    for layer, values in (("images", 256), ("given", 3), ("repaired", 3), ("weights", 256)):
        for name, pixels in zip(names, rng.integers(0, values, (count, 16, 16), dtype=np.uint8), strict=True):
            Image.fromarray(pixels).save(folder / layer / f"{name}.png", compress_level=1)
    page = build_audit_report(folder, tmp_path / "report.html")
    assert count * 1_000 < page.stat().st_size < count * 6_000  # 12 MB for 2000 images
    with chromium() as browser:
        browser.get(page.as_uri())
        assert browser.find_element(By.ID, "where").text == f"1–5 of {count}"
        blobs = "return new Set(document.getElementById('gallery-blobs').textContent.split('\\n')).size"
        assert browser.execute_script(blobs) >= 4 * count  # no two pictures are the same
        browser.execute_script("document.querySelector('input[value=repaired]').click()")
        browser.execute_script("const n = document.getElementById('next'); while (!n.disabled) n.click()")
        assert browser.find_element(By.ID, "where").text == f"{count - 7}–{count} of {count}"
        titles = [title.text for title in browser.find_elements(By.CSS_SELECTOR, ".entry h3")]
        assert [title.split()[0] for title in titles] == names[-8:]
        assert browser.execute_async_script(
            "const end = arguments[0]; const all = [...document.querySelectorAll('.panel img')];"
            "Promise.all(all.map(i => i.decode())).then(() => end(all.length === 16), () => end(false))"
        )
        assert complaints(browser) == []


def test_audit_report_opens_from_disk_and_its_controls_work(tmp_path: Path):
    names = (HOSTILE, *(f"image{number}" for number in range(16)))
    page = build_audit_report(finish(make_audit(tmp_path, names)), tmp_path / "audit.html")
    with chromium() as browser:
        browser.get(page.as_uri())

        def shown(selector: str) -> int:
            return browser.execute_script(f"return document.querySelectorAll({selector!r}).length")

        def layers() -> list[str]:
            return browser.execute_script(
                "return [...document.querySelectorAll('.panel figcaption')].map(f => f.innerText)"
            )

        assert layers()[:5] == ["Image", "Given", "Predicted", "Repaired", "Wrongness"]
        assert shown(".entry") == 5 and shown(".panel img") == 5 * 9  # image alone, then four times with a layer
        for view, pictures in (("image", 1), ("given", 2), ("predicted", 2), ("repaired", 2), ("wrongness", 2)):
            browser.execute_script(f"document.querySelector('input[value={view}]').click()")
            assert set(layers()) == {view.capitalize()} and shown(".entry") == 12
            assert shown(".panel img") == 12 * pictures
        assert browser.find_element(By.ID, "where").text == "1–12 of 17"
        browser.execute_script("document.getElementById('next').click()")  # the page scrolls smoothly under a mouse
        assert browser.find_element(By.ID, "where").text == "13–17 of 17"
        choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        browser.execute_script(choose + "s.dispatchEvent(new Event('change'))", "kind", "mismatched pair")
        assert browser.find_element(By.ID, "where").text == "1–4 of 4"  # every fourth, from the second on
        browser.execute_script(choose + "s.dispatchEvent(new Event('change'))", "kind", "")
        browser.execute_script(choose + "s.dispatchEvent(new Event('input'))", "find", "<img")
        assert browser.find_element(By.CSS_SELECTOR, ".entry h3").text.startswith(HOSTILE)
        decoded = "return [...document.querySelectorAll('.panel img')].every(i => i.complete && i.naturalWidth > 0)"
        assert browser.execute_async_script(
            "const end = arguments[0]; Promise.all([...document.querySelectorAll('.panel img')].map(i => i.decode()))"
            f".then(() => end((() => {{ {decoded} }})()), () => end(false))"
        )
        browser.set_window_size(390, 844)
        wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert browser.execute_script(wide)
        asked = [address for address in requested(browser) if not address.startswith(("data:", "blob:", "about:"))]
        assert asked == [page.as_uri()]
        assert complaints(browser) == []
