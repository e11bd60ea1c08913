"""The pages with axe-core's checks in chromium, at both widths, light and dark, and by keyboard alone.

axe-core is not part of this repository: `npm install --no-save axe-core` puts it where this looks; `.ci/run` does.
"""

from pathlib import Path

import pytest

from grader.verdict.models import Diagnosis, Status
from tests.report.test_site import GPU, Site, full, timed_on_a_gpu
from tests.serve.serving import Server

pytestmark = pytest.mark.browser

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    site = Site(folder)
    full(site)
    for number in range(14):
        site.save(f"author{number}", text=f"n = {number}\n", where=GPU, total=0.5 + number / 4, label=f"v{number}")
    site.save("ann", "timed", **timed_on_a_gpu())
    faults = [
        Diagnosis(code="grad_zero", stage="backward", message="`x` is zero.", detail={"consequences": ["a", "b"]})
    ]
    site.save("eve", status=Status.WRONG_BACKWARD, text="w = 1\n", where=GPU, diagnoses=faults)
    site.store.close()
    with Server(folder / "grader.db") as server:
        yield server.address


PAGES = (
    "",
    "verdicts.html?status=correct",
    "problems/scale.html",
    "authors/ann.html",
    "verdicts/22.html",
    "verdicts/23.html",
)


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install --no-save axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing(browser, address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    try:
        for name in PAGES:
            page = context.new_page()
            page.goto(address + name)
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run()")["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], name
            page.close()
    finally:
        context.close()


def test_the_keyboard_reaches_and_operates_everything(browser, address):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address + "verdicts.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "choose-status"
    page.keyboard.type("missing")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "submit":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is visible"
    page.keyboard.press("Enter")
    page.wait_for_url("**/verdicts.html?status=missing_backward*")
    assert page.get_by_role("status").first.inner_text() == "1 of 23 verdicts match"
    reached, names = 0, set()
    while reached < 80:
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.tagName + document.activeElement.textContent.trim().slice(0, 40)")
        if name.startswith("BODY"):
            break
        names.add(name)
        reached += 1
    assert {"AAll verdicts", "BUTTONFilter", "BUTTONAuthor", "Abob"} <= names
    page.close()
