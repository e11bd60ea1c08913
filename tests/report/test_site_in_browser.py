"""The report in a real browser: opened from the folder, as a reader does."""

import pytest

from grader.verdict.models import Status
from tests.report.test_site import GPU, PAYLOADS, Site, full, hostile

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("report"))
    full(site)
    for number in range(12):
        status = Status.CORRECT if number % 3 else Status.MISSING_BACKWARD
        site.save(f"author{number}", text=f"n = {number}\n", where=GPU, status=status, total=0.5 + number / 4)
    hostile(site, "".join(one for one in PAYLOADS if one.isprintable()))
    site.write()
    site.store.close()
    return site.folder / "out"


@pytest.fixture
def opened(browser, folder):
    """Opens a page of the report; in the end nothing may have been complained of on any."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    complaints = []

    def open_page(name, **media):
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        if media:
            page.emulate_media(**media)
        page.goto(folder.joinpath(name.partition("#")[0]).as_uri() + "".join(name.partition("#")[1:]))
        return page

    yield open_page
    context.close()
    assert complaints == []


def column(page, table, number):
    return page.locator(f"{table} tbody tr:visible > :nth-child({number})").all_inner_texts()


def gpu_board(page):
    """The id of the first board by author, on the GPU."""
    return "#" + page.locator("table[id$='-a-total']").first.get_attribute("id")


def test_every_page_opens_without_complaint_and_payloads_stay_inert(opened, folder):
    page = opened("index.html")
    for path in sorted(folder.rglob("*.html")):
        page.goto(path.as_uri())
        assert page.title() != "owned"
        assert page.locator("img, iframe, [onerror], [onload]").count() == 0
        assert page.locator("script").count() == 1


def test_a_table_is_sorted_by_click_and_by_key_and_says_so(opened):
    page = opened("index.html")
    table = gpu_board(page)
    heading = page.locator(f"{table} thead th", has_text="Author")
    heading.get_by_role("button").click()
    names = column(page, table, 2)
    numbered = [name for name in names if name.startswith("author")]
    assert names[0] == "ann"
    assert numbered == sorted(numbered, key=lambda name: int(name.removeprefix("author")))
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(page, table, 2) == names[::-1]
    page.locator(f"{table} thead th", has_text="Speedup").get_by_role("button").click()
    speedups = [float(one.rstrip("×")) for one in column(page, table, 4) if one != "–"]
    assert speedups == sorted(speedups, reverse=True)
    assert column(page, table, 4)[-1] == "–"


def test_a_table_is_filtered_and_a_link_remembers_it(opened):
    page = opened("lists/1.html")
    page.get_by_label("Filter").fill("author1 missing")
    assert page.get_by_role("status").inner_text() == "0 of 21"
    page.get_by_label("Filter").fill("bob missing")
    assert column(page, "#all-verdicts", 3) == ["bob"]
    again = opened("lists/1.html#" + page.url.partition("#")[2])
    assert column(again, "#all-verdicts", 3) == ["bob"]


def test_the_slider_moves_p(opened):
    page = opened("index.html")
    box = page.locator(".fast-p").nth(0)
    slider, said = box.locator("input"), box.locator("output")
    assert said.inner_text().startswith("p = 1: ")
    before = box.locator(".cursor").get_attribute("x1")
    slider.press("ArrowRight")
    assert said.inner_text().startswith("p = 1.05: ")
    assert float(box.locator(".cursor").get_attribute("x1")) > float(before)
    slider.fill("2")
    table = page.locator(".fast-p + .scroll table").nth(0)
    total, forward = (table.locator("tbody tr").nth(row).locator("td").last.inner_text() for row in (0, 1))
    assert said.inner_text() == f"p = 2: {total} forward and backward, {forward} forward"
    assert slider.get_attribute("aria-valuetext") == said.inner_text()
    assert "> 2×" in page.locator(f"{gpu_board(page)} thead").inner_text()
    again = opened("index.html#" + page.url.partition("#")[2])
    assert again.locator(".fast-p output").nth(0).inner_text() == said.inner_text()


def test_dark_follows_the_system_and_the_button(opened):
    def background(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = opened("index.html", color_scheme="dark")
    assert background(page) == "rgb(20, 23, 27)"
    page.get_by_role("button", name="Light colours").click()
    assert background(page) == "rgb(255, 255, 255)"
    page.goto(page.url.replace("index.html", "verdicts/1.html"))  # another tab may not know of the choice for a moment
    assert background(page) == "rgb(255, 255, 255)"


def test_a_link_to_a_line_leads_there(opened):
    page = opened("verdicts/1.html#L1")
    assert page.locator(".l:target").inner_text() == "x = 1"


def test_what_follows_from_a_cause_is_folded_under_it(opened):
    page = opened("verdicts/21.html")
    folded = page.locator(".diagnoses .consequences li")
    assert folded.count() == 2
    assert not folded.nth(1).is_visible()
    page.get_by_text("2 more from this cause").click()
    assert folded.nth(1).is_visible()
    assert folded.nth(1).locator(".code").inner_text() == "grad_zero"
    assert "consequences" not in page.locator(".diagnoses").inner_text()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_columns_of_lists_and_boards_fit(opened, width):
    for name in ("lists/1.html", "problems/scale.html", "authors/ann.html"):
        page = opened(name)
        page.set_viewport_size({"width": width, "height": 800})
        scrolled = page.evaluate(
            """[...document.querySelectorAll(".scroll:has(table.sortable)")]
                .filter((one) => one.scrollWidth > one.clientWidth)
                .map((one) => one.getAttribute("aria-label") + ": " + one.scrollWidth)"""
        )
        assert scrolled == [], name
    heads = opened("lists/1.html").locator("#all-verdicts thead th:visible").all_inner_texts()
    assert {"95% INTERVAL", "FORWARD", "WHEN, UTC"} <= {one.strip("↕ ").upper() for one in heads}


def test_no_page_is_wider_than_a_phone(opened):
    for name in ("index.html", "verdicts/1.html", "lists/1.html", "problems/scale.html", "authors/ann.html"):
        page = opened(name)
        page.set_viewport_size({"width": 390, "height": 800})
        wide = page.evaluate(
            """[...document.querySelectorAll("body *")]
                .filter((one) => !one.closest(".scroll, pre, .diff, .skip, figure")
                && one.getBoundingClientRect().right > 391).map((one) => one.outerHTML.slice(0, 90))"""
        )
        assert wide == [], name
