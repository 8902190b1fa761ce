"""Chromium under test: no window, no network but this machine, and nothing it complains about goes unread."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException

BINARIES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root, where Chromium's sandbox does not start
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--force-device-scale-factor=1",
    "--window-size=1440,900",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
)

BACKGROUNDS = {"light": "rgb(246, 247, 249)", "dark": "rgb(16, 20, 24)"}
"""Of the body, in the reports and in the review page."""


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A fresh browser; without Chromium the test is skipped, but fails where CI=true."""
    binary = next((found for name in BINARIES if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        if binary is None or driver is None:
            raise WebDriverException("chromium or chromedriver is not installed (apt-get install chromium-driver)")
        options.binary_location = binary
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except WebDriverException as error:
        reason = f"Chromium cannot run: {(error.msg or '').splitlines()[0]}"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield browser
    finally:
        browser.quit()


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 15) -> Any:
    """Poll until the condition holds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.03)


def complaints(browser: webdriver.Chrome) -> list[str]:
    """What the console holds: errors, warnings, broken rules of the security policy."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requested(browser: webdriver.Chrome) -> list[str]:
    """Every address that the pages asked for."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return found


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Let the system be ``light`` or ``dark``; empty: as it is."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def background(browser: webdriver.Chrome) -> str:
    """The colour that the page has now."""
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")
