"""The training report as its reader opens it: from the disk, in real Chromium, without any network."""

from __future__ import annotations

import sys
from pathlib import Path

from selenium.webdriver.common.by import By
from test_report import write_run

from jcas.report import build_report

sys.path.insert(0, str(Path(__file__).parent / "review"))

from browser import chromium, complaints, requested


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
