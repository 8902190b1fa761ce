"""The review page in real Chromium, from the first look to the exported mask, pixel by pixel."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from audit_folder import make_audit
from browser import BACKGROUNDS, background, chromium, complaints, prefer, requested, wait_for
from PIL import Image
from review_server import Server, run_command, serving
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

NAMES = (
    "first",
    'it\'s "<b>quoted</b>"'.replace("/", "-"),
    "<img src=x onerror=alert(1)>",
    "图像 🫀 #4",
    "fifth",
    "sixth",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as started:
        yield started


class Page:
    """What a person sees and does."""

    def __init__(self, browser: webdriver.Chrome, server: Server, audit: Path) -> None:
        self.browser, self.server, self.audit = browser, server, audit
        lines = (audit / "images.jsonl").read_text("utf-8").splitlines()
        self.numbers = {json.loads(line)["id"]: number for number, line in enumerate(lines)}

    def open(self, *, again: bool = False) -> Page:
        if again:
            self.browser.refresh()
        else:
            self.browser.get(self.server.address)
        ready = "return document.documentElement.dataset.ready === 'yes'"
        wait_for(lambda: self.browser.execute_script(ready), "the page")
        return self

    def text(self, name: str) -> str:
        return self.browser.find_element(By.ID, name).text

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def click(self, selector: str) -> None:
        self.browser.find_element(By.CSS_SELECTOR, selector).click()

    def go(self, name: str) -> None:
        """To an image of this name, by the arrow keys."""
        ranked = [image["id"] for image in self.server.ask("/api/review").json()["images"]]
        steps = ranked.index(name) - ranked.index(self.text("title"))
        for _ in range(abs(steps)):
            before = self.text("title")
            self.press(Keys.ARROW_RIGHT if steps > 0 else Keys.ARROW_LEFT)
            wait_for(lambda before=before: self.text("title") != before, "the next image")
        assert self.text("title") == name
        shown = "return document.getElementById('canvas').dataset.shown"
        wait_for(lambda: self.browser.execute_script(shown) == str(self.numbers[name]), "its picture")

    def state(self, name: str) -> dict:
        return self.server.ask(f"/api/images/{self.numbers[name]}").json()["state"]

    def wait_status(self, status: str) -> None:
        wait_for(lambda: self.text("status") == status and self.text("saved") == "All saved", f"status {status}")

    def wait_revision(self, name: str, revision: int) -> None:
        wait_for(lambda: self.state(name)["revision"] == revision and self.text("saved") == "All saved", "the save")

    def layer(self, layer: str, name: str) -> np.ndarray:
        return np.array(Image.open(self.audit / layer / f"{name}.png"))

    def view(self) -> tuple[float, float, float]:
        data = self.browser.execute_script("return {...document.getElementById('canvas').dataset}")
        return float(data["scale"]), float(data["left"]), float(data["top"])

    def pointer(self, *places: tuple[float, float]) -> list[tuple[int, int]]:
        """Whole screen pixels, from the canvas's corner, over places (row, column) of the image."""
        scale, left, top = self.view()
        return [(round(left + column * scale), round(top + row * scale)) for row, column in places]

    def drag(self, points: list[tuple[int, int]], *, shift: bool = False) -> None:
        """Press at the first point, go through the others, let go."""
        canvas = self.browser.find_element(By.ID, "canvas")
        width, height = canvas.rect["width"], canvas.rect["height"]
        actions = ActionChains(self.browser, duration=20)
        offset = [(int(x - width // 2), int(y - height // 2)) for x, y in points]
        if shift:
            actions.key_down(Keys.SHIFT)
        actions.move_to_element_with_offset(canvas, *offset[0]).click_and_hold()
        for x, y in offset[1:]:
            actions.move_to_element_with_offset(canvas, x, y)
        actions.release()
        if shift:
            actions.key_up(Keys.SHIFT)
        actions.perform()

    def painted_by(self, points: list[tuple[int, int]], size: int, shape: tuple[int, int]) -> np.ndarray:
        """The pixels that a round brush touches on its way, from the definition of distance to a segment."""
        scale, left, top = self.view()
        way = [np.array([(x - left) / scale, (y - top) / scale]) for x, y in points]
        rows, columns = np.indices(shape)
        centres = np.stack([columns + 0.5, rows + 0.5], axis=-1)
        touched = np.zeros(shape, bool)
        for start, end in zip(way[:-1] or way, way[1:] or way, strict=True):
            along = end - start
            length = float(along @ along)
            share = np.clip((centres - start) @ along / length, 0, 1) if length else np.zeros(shape)
            touched |= np.linalg.norm(centres - (start + share[..., None] * along), axis=-1) <= size / 2
        return touched


@pytest.fixture
def page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Page]:
    audit = make_audit(tmp_path, NAMES, size=(60, 80))
    with serving(audit) as server:
        browser.get("about:blank")
        complaints(browser), requested(browser)  # of the test before
        yield Page(browser, server, audit).open()
        assert complaints(browser) == []


def test_whole_review_ends_in_the_expected_masks(page: Page, tmp_path: Path):
    browser = page.browser
    assert page.text("progress") == "0 of 6 reviewed"
    assert "token" not in browser.current_url

    # accept and reject with the keys
    page.go("first")
    page.press("a")
    page.wait_status("accepted")
    page.go("fifth")
    page.press("r")
    page.wait_status("rejected")
    assert page.text("progress") == "2 of 6 reviewed"

    # one region accepted by a click into the image, one rejected by shift and click
    strange = NAMES[1]
    page.go(strange)
    regions = page.layer("regions", strange)
    for region, shift in ((1, False), (2, True)):
        row, column = (int(x) for x in np.argwhere(regions == region)[(regions == region).sum() // 2])
        page.drag(page.pointer((row + 0.5, column + 0.5)), shift=shift)
        page.wait_revision(strange, region)
    assert page.state(strange)["regions"] == {"1": True, "2": False}

    # brush of class 2 along a bent way, eraser as a dab, and a third stroke undone
    other = NAMES[3]
    page.go(other)
    page.press("2")
    browser.execute_script(
        "const s = document.getElementById('size'); s.value = 7; s.dispatchEvent(new Event('input'))"
    )
    way = page.pointer((10.3, 8.2), (30.6, 20.4), (24.5, 40.1))
    stroke = page.painted_by(way, 7, (60, 80))
    page.drag(way)
    page.wait_revision(other, 1)
    page.press("e")
    dab = page.pointer((31.4, 22.7))
    erased = page.painted_by(dab, 7, (60, 80))
    page.drag(dab)
    page.wait_revision(other, 2)
    page.press("1")
    page.drag(page.pointer((50, 60), (55, 70)))
    page.wait_revision(other, 3)
    page.press("u")
    page.wait_revision(other, 4)
    assert stroke.sum() > 150 and erased.sum() > 30 and (stroke & erased).any()

    # untrusted
    page.go("sixth")
    page.press("i")
    page.wait_status("untrusted")

    # everything is there after a reload and a killed server, and undo still works
    page.open(again=True)
    assert page.text("progress") == "3 of 6 reviewed" and page.text("title") == "sixth"
    os.kill(page.server.process.pid, signal.SIGKILL)
    page.server.process.wait()
    with serving(page.audit) as server:
        page.server = server
        page.open()
        page.go("fifth")
        assert page.text("status") == "rejected"
        page.press("u")
        page.wait_status("to review")
        assert page.text("progress") == "2 of 6 reviewed"

        code, written = run_command("review", str(page.audit), "--export", str(tmp_path / "out"))
        assert code == 0 and "1 untrusted left out" in written

    given = {name: page.layer("given", name) for name in NAMES}
    expected = {name: given[name].copy() for name in NAMES if name != "sixth"}
    expected["first"] = page.layer("repaired", "first")
    expected[strange][regions == 1] = page.layer("repaired", strange)[regions == 1]
    expected[other][stroke] = 2
    expected[other][erased] = 0
    assert {path.stem for path in (tmp_path / "out" / "masks").iterdir()} == set(expected)
    for name, mask in expected.items():
        assert np.array_equal(np.array(Image.open(tmp_path / "out" / "masks" / f"{name}.png")), mask), name


def test_page_asks_only_this_server_and_shows_strange_names_as_text(page: Page):
    page.go(NAMES[2])
    page.press("?")
    assert page.browser.find_element(By.ID, "help").is_displayed()
    page.press(Keys.ESCAPE)
    names = {row.text for row in page.browser.find_elements(By.CSS_SELECTOR, ".row .name")}
    assert names == set(NAMES)
    assert not page.browser.find_elements(By.CSS_SELECTOR, "img[src='x'], .name b, h1 b")
    wait_for(
        lambda: page.browser.execute_script(
            "return [...document.querySelectorAll('.row img')].every(i => i.naturalWidth)"
        ),
        "thumbnails",
    )
    addresses = requested(page.browser)
    assert len(addresses) > 20
    assert all(re.match(rf"{re.escape(page.server.origin)}/|data:,|about:", address) for address in addresses)


def test_second_tab_is_told_and_shown_the_newest_state(page: Page):
    browser = page.browser
    page.go("first")
    here = browser.current_window_handle
    browser.switch_to.new_window("tab")
    page.open()
    page.go("first")
    page.press("r")
    page.wait_status("rejected")
    browser.close()
    browser.switch_to.window(here)
    assert page.text("status") == "to review"
    page.press("a")
    wait_for(lambda: "changed in another tab" in page.text("notice"), "the warning")
    wait_for(lambda: page.text("status") == "rejected", "the newest state")
    assert page.state("first")["revision"] == 1
    page.press("a")  # now with open eyes
    page.wait_status("accepted")
    assert page.state("first")["revision"] == 2
    # a stroke over a stale image is taken back on the screen, too
    page.server.decide(page.numbers["first"], "untrusted", revision=2)
    page.press("2")
    page.drag(page.pointer((10, 60), (12, 70)))
    wait_for(lambda: page.text("status") == "untrusted", "the newest state")
    assert not page.state("first")["painted"]
    refused = complaints(browser)
    assert len(refused) == 2 and all("409" in message for message in refused)


def test_dead_server_is_reported_and_the_decision_not_pretended(page: Page):
    page.go("first")
    page.server.process.kill()
    page.server.process.wait()
    page.press("a")
    wait_for(lambda: "Is `jcas review` still running?" in page.text("notice"), "the report")
    assert page.text("saved") == "Not saved" and page.text("status") == "to review"
    assert all("ERR_CONNECTION_REFUSED" in message for message in complaints(page.browser))


def test_filters_layers_zoom_and_pan(page: Page):
    browser = page.browser
    Select(browser.find_element(By.ID, "filter-kind")).select_by_value("mismatched_pair")
    with_kind = {
        row["id"] for row in page.server.ask("/api/review").json()["images"] if "mismatched_pair" in row["kinds"]
    }
    wait_for(lambda: page.text("shown") == f"{len(with_kind)} of 6", "the filter")
    assert {row.text for row in browser.find_elements(By.CSS_SELECTOR, ".row .name")} == with_kind
    Select(browser.find_element(By.ID, "filter-kind")).select_by_value("")
    browser.find_element(By.ID, "search").send_keys("FIF", Keys.ESCAPE)
    wait_for(lambda: page.text("title") == "fifth", "the only match")
    page.press(Keys.ARROW_RIGHT)
    assert page.text("notice") == "This is the last image."

    def pixel(row: float, column: float) -> list[int]:
        ((x, y),) = page.pointer((row, column))
        script = """
            const [x, y, done] = arguments;
            const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
            requestAnimationFrame(() => requestAnimationFrame(() => {
                copy.drawImage(document.getElementById('canvas'), -x, -y);
                done([...copy.getImageData(0, 0, 1, 1).data]);
            }));"""
        return browser.execute_async_script(script, x, y)

    given, repaired = page.layer("given", "fifth"), page.layer("repaired", "fifth")
    browser.execute_script(
        "const o = document.getElementById('opacity'); o.value = 100; o.dispatchEvent(new Event('input'))"
    )
    row, column = (int(x) for x in np.argwhere((given == 0) & (repaired == 1))[20])
    colour = [78, 121, 167, 255]
    page.click("[data-layer=repaired]")
    assert pixel(row + 0.5, column + 0.5) == colour
    page.click("[data-layer=given]")
    assert pixel(row + 0.5, column + 0.5) != colour
    ActionChains(browser).key_down("c").perform()
    assert pixel(row + 0.5, column + 0.5) == colour  # held down: the suggestion
    ActionChains(browser).key_up("c").perform()
    assert pixel(row + 0.5, column + 0.5) != colour
    page.press("h")
    assert browser.find_element(By.CSS_SELECTOR, "[data-layer=none]").get_attribute("aria-pressed") == "true"

    scale, left, top = page.view()
    canvas = browser.find_element(By.ID, "canvas")
    origin = webdriver.common.actions.wheel_input.ScrollOrigin.from_element(canvas, 40, 30)
    ActionChains(browser).scroll_from_origin(origin, 0, -120).perform()
    wait_for(lambda: page.view()[0] > scale * 1.1, "the zoom")
    centre = canvas.rect["width"] // 2 + 40, canvas.rect["height"] // 2 + 30
    zoomed = page.view()
    for at, before, after in zip(centre, (left, top), zoomed[1:], strict=True):  # the place under the pointer stays
        assert abs((at - before) / scale - (at - after) / zoomed[0]) < 0.51
    page.press("b")
    canvas_centre = ActionChains(browser).move_to_element(canvas).key_down(Keys.SPACE).click_and_hold()
    canvas_centre.move_by_offset(50, -20).release().key_up(Keys.SPACE).perform()
    wait_for(lambda: abs(page.view()[1] - zoomed[1] - 50) < 1 and abs(page.view()[2] - zoomed[2] + 20) < 1, "the pan")
    page.press("f")
    wait_for(lambda: page.view() == (scale, left, top), "the fit")
    assert page.state("fifth")["revision"] == 0  # looking decides nothing


def test_keys_in_the_search_field_decide_nothing(page: Page):
    field = page.browser.find_element(By.ID, "search")
    field.send_keys("ariu1")
    wait_for(lambda: page.text("shown") == "0 of 6", "the filter")
    assert "No image fits" in page.browser.find_element(By.ID, "rows").text
    field.send_keys(Keys.CONTROL, "a")
    assert sum(page.state(name)["revision"] for name in NAMES) == 0


def test_next_image_after_accept_and_undo_comes_back(page: Page):
    page.click("#advance")
    first = page.text("title")
    page.press("a")
    wait_for(lambda: page.text("title") != first, "the next image")
    page.press("u")
    wait_for(lambda: page.text("title") == first and page.text("status") == "to review", "the way back")
    assert page.state(first)["revision"] == 2
    page.browser.execute_script("localStorage.clear()")


# --- tests that share one server: each decides about an image of its own -------------------------------------------


def add_class(audit: Path, name: str, image: str) -> None:
    """Let the dataset have one class more, which the audit suggests for one region of one image."""
    for file in (audit / "audit.json", audit.parent / "data" / "dataset.yaml"):
        about = json.loads(file.read_text())
        about |= {"classes": [*about["classes"], name], "colours": [*about["colours"], [40, 160, 90]]}
        file.write_text(json.dumps(about))
    with (audit / "issues.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    next(row for row in rows if row[0] == image)[rows[0].index("class_suggested")] = name
    with (audit / "issues.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    audit = make_audit(tmp_path_factory.mktemp("shared"), NAMES, size=(60, 80))
    add_class(audit, "vessel", "fifth")
    with serving(audit) as server:
        yield server, audit


@pytest.fixture
def shared(browser: webdriver.Chrome, shared_server: tuple[Server, Path]) -> Iterator[Page]:
    browser.get("about:blank")
    complaints(browser)
    yield Page(browser, *shared_server).open()
    assert complaints(browser) == []


def test_filters_by_class_and_by_status(shared: Page):
    browser = shared.browser
    for name, action in (("first", "accept"), ("sixth", "untrusted")):
        number = shared.numbers[name]
        assert shared.server.decide(number, action, revision=shared.state(name)["revision"]).status == 200
    shared.open(again=True)

    def choose(which: str, value: str, expected: set[str]) -> None:
        Select(browser.find_element(By.ID, f"filter-{which}")).select_by_value(value)
        wait_for(lambda: shared.text("shown") == f"{len(expected)} of 6", f"{which} {value}")
        assert {row.text for row in browser.find_elements(By.CSS_SELECTOR, ".row .name")} == expected
        if expected:
            wait_for(lambda: shared.text("title") in expected, "an image that fits")

    classes = Select(browser.find_element(By.ID, "filter-class"))
    assert "vessel (1)" in [option.text for option in classes.options]
    choose("class", "vessel", {"fifth"})
    choose("class", "organ", set(NAMES))
    choose("status", "accepted", {"first"})
    choose("status", "untrusted", {"sixth"})
    choose("status", "done", {"first", "sixth"})
    choose("status", "todo", set(NAMES) - {"first", "sixth"})
    choose("status", "rejected", set())
    choose("status", "", set(NAMES))


def test_buttons_of_a_region_accept_and_reject_it(shared: Page):
    name = NAMES[1]
    shared.go(name)

    def press(region: int, button: str, revision: int) -> None:
        shared.click(f".issue .{button}[aria-label$='region {region})']")
        shared.wait_revision(name, revision)
        item = shared.browser.find_element(By.CSS_SELECTOR, f".issue:has([aria-label$='region {region})'])")
        pressed = {c: item.find_element(By.CLASS_NAME, c).get_attribute("aria-pressed") for c in ("yes", "no")}
        assert pressed == {"yes": str(button == "yes").lower(), "no": str(button == "no").lower()}
        assert ("accepted" if button == "yes" else "rejected") in item.get_attribute("class").split()

    press(1, "yes", 1)
    press(2, "no", 2)
    assert shared.state(name)["regions"] == {"1": True, "2": False} and shared.text("status") == "partly"
    press(1, "no", 3)
    assert shared.state(name)["regions"] == {"1": False, "2": False}


def pressed(page: Page, attribute: str) -> list[str]:
    script = "return [...document.querySelectorAll(`[data-${arguments[0]}][aria-pressed=true]`)]"
    return page.browser.execute_script(script + ".map((b) => b.dataset[arguments[0]])", attribute)


KEYS: dict[str, tuple[tuple[str, ...], Callable[[Page], object], object]] = {
    "V": (("b", "v"), lambda page: pressed(page, "tool"), ["select"]),
    "L": (("l",), lambda page: pressed(page, "layer"), ["given"]),
    "L all around": (("l",) * 6, lambda page: pressed(page, "layer"), ["result"]),
    "[": (("[",), lambda page: page.text("size-value"), "9"),  # 12 / 1.25 - 0.5
    "]": (("]",), lambda page: page.text("size-value"), "16"),  # 12 * 1.25 + 0.5
    "0": (("0",), lambda page: (pressed(page, "class"), pressed(page, "tool")), (["0"], ["brush"])),
    "3": (("3",), lambda page: (pressed(page, "class"), pressed(page, "tool")), (["3"], ["brush"])),
    "4 is no class": (("b", "4"), lambda page: pressed(page, "class"), ["1"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_tools_and_layers(shared: Page, name: str):
    keys, seen, expected = KEYS[name]
    shared.press(*keys)
    wait_for(lambda: seen(shared) == expected, f"{expected}, not {seen(shared)}")


@pytest.mark.parametrize(("key", "factor"), [("+", 1.4), ("=", 1.4), ("-", 1 / 1.4)])
def test_keys_of_the_zoom(shared: Page, key: str, factor: float):
    before = shared.view()[0]
    shared.press(key)
    wait_for(lambda: shared.view()[0] == pytest.approx(before * factor, rel=1e-3), "the zoom")


def test_keys_down_and_up_walk_through_the_list(shared: Page):
    ranked = [image["id"] for image in shared.server.ask("/api/review").json()["images"]]
    shared.go(ranked[0])
    for key, place in ((Keys.ARROW_DOWN, 1), (Keys.ARROW_DOWN, 2), (Keys.ARROW_UP, 1)):
        shared.press(key)
        wait_for(lambda place=place: shared.text("title") == ranked[place], "the image")


def test_key_i_twice_trusts_again(shared: Page):
    shared.go("fifth")
    shared.press("i")
    shared.wait_status("untrusted")
    assert shared.browser.find_element(By.ID, "untrusted").get_attribute("aria-pressed") == "true"
    shared.press("i")
    shared.wait_status("to review")
    state = shared.state("fifth")
    assert not state["untrusted"] and state["revision"] == 2


def test_painted_ignored_is_label_255_in_the_export(shared: Page, tmp_path: Path):
    name = NAMES[3]
    shared.go(name)
    shared.click("[data-class='255']")
    way = shared.pointer((20.3, 30.2), (32.6, 44.4))
    stroke = shared.painted_by(way, 12, (60, 80))
    shared.drag(way)
    shared.wait_revision(name, 1)
    code, _ = run_command("review", str(shared.audit), "--export", str(tmp_path / "out"))
    assert code == 0
    expected = np.where(stroke, 255, shared.layer("given", name))
    assert stroke.sum() > 150
    assert np.array_equal(np.array(Image.open(tmp_path / "out" / "masks" / f"{name}.png")), expected)


def test_dark_and_light_follow_the_system_until_someone_chooses(shared: Page):
    browser = shared.browser
    try:
        for scheme in ("dark", "light"):
            prefer(browser, scheme)
            assert background(browser) == BACKGROUNDS[scheme]
        prefer(browser, "dark")
        for chosen in ("light", "dark"):  # then automatic again
            shared.click("#theme")
            assert shared.text("theme") == chosen.capitalize() and background(browser) == BACKGROUNDS[chosen]
            shared.open(again=True)
            assert background(browser) == BACKGROUNDS[chosen]
        shared.click("#theme")
        prefer(browser, "light")
        assert shared.text("theme") == "Auto" and background(browser) == BACKGROUNDS["light"]
    finally:
        prefer(browser, "")
        browser.execute_script("localStorage.clear()")


@pytest.mark.parametrize(("ci", "outcome"), [("true", "Failed"), ("", "Skipped")])
def test_without_chromium_ci_fails_and_others_skip(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CI", ci)
    with (
        pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="Chromium cannot run") as ended,
        chromium(),
    ):
        pass
    assert ended.typename == outcome
