"""The server's pages in a real browser: progress arrives, a submission leads to its verdict, payloads stay inert."""

import pytest

from grader.verdict.models import Status
from tests.report.test_site import PAYLOADS, full, hostile
from tests.serve.serving import Server
from tests.serve.test_submit import PROBLEM, TOKEN

pytestmark = pytest.mark.browser

HARMLESS_TO_PRINT = "".join(one for one in PAYLOADS if one.isprintable())


@pytest.fixture
def page(browser):
    """A page; in the end nothing may have been complained of."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, complaints = context.new_page(), []
    # That a token is wrong the browser reports too.
    page.on("console", lambda message: "403 (Forbidden)" in message.text or complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    yield page
    context.close()
    assert complaints == []


def first_row(page):
    return page.locator("#live-verdicts tbody tr").first


def test_every_page_opens_without_complaint_and_payloads_stay_inert(site, page):
    full(site)
    hostile(site, HARMLESS_TO_PRINT)
    names = sorted(site.write())
    with Server(site.folder / "grader.db") as server:
        for name in ["", "live.html", "compare/2.html", "compare/1-2.html", "compare/8-9.html", *names]:
            page.goto(server.address + name)
            assert page.title() != "owned", name
            assert page.locator("img, iframe, [onerror], [onload]").count() == 0, name
            assert page.locator("script").count() == 1, name


def test_verdicts_of_another_process_appear_and_a_lost_connection_comes_back(site, page):
    site.save()
    with Server(site.folder / "grader.db") as server:
        page.goto(server.address + "live.html")
        page.get_by_text("Connected; waiting for verdicts.").wait_for()
        with site.store.run(["grade", "elsewhere"]):
            page.locator("#runs-table").get_by_text("grade elsewhere").wait_for()
            page.locator("#runs-table").get_by_text("not ended").wait_for()
        site.save(HARMLESS_TO_PRINT, text="h = 1\n", status=Status.MISSING_BACKWARD)
        page.get_by_text("Connected; 1 verdict since this page was opened.").wait_for()
        assert "missing backward" in first_row(page).inner_text()
        assert HARMLESS_TO_PRINT in first_row(page).inner_text()
        assert page.title() == "Live"
        page.context.set_offline(True)
        page.context.set_offline(False)
        page.get_by_label("Filter").fill("eve")
        site.save("eve", text="e = 1\n")
        page.get_by_text("Connected; 2 verdicts since this page was opened.").wait_for()
        assert page.locator("#live-verdicts tbody tr:visible").count() == 1
        first_row(page).get_by_role("link", name="3", exact=True).click()
        assert page.url.endswith("/verdicts/3.html")


def test_a_comparison_is_chosen_from_a_verdicts_page(site, page):
    full(site)
    with Server(site.folder / "grader.db") as server:
        page.goto(server.address + "verdicts/3.html")
        page.get_by_role("link", name="Compare with any other submission").click()
        page.get_by_role("link", name="ann, verdict 2").click()
        page.wait_for_url("**/compare/2-3.html")
        assert page.locator(".diff tr.added").all_inner_texts() == ["\t1\t+ b = 1"]
        assert page.locator(".diff tr.removed").all_inner_texts() == ["1\t\t- x = 2"]


@pytest.mark.slow
def test_a_submission_leads_to_its_verdict_and_only_with_the_token(tmp_path, page):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "tiny.py").write_text(PROBLEM)
    arguments = ("--submit", "--problems", str(tmp_path / "problems"), "--quick", "--workers", "1", "--device", "cpu")
    with Server(tmp_path / "grader.db", *arguments, GRADER_TOKEN=TOKEN, XDG_CACHE_HOME=str(tmp_path)) as server:
        page.goto(server.address)
        page.get_by_role("link", name="Submit").click()
        source = (
            PROBLEM.replace("class Model(", "class ModelNew(")
            + "# </textarea><script>document.title='owned'</script>\n"
        )
        page.get_by_label("Author").fill("ann")
        page.get_by_label("Problem").select_option("tiny")
        page.get_by_label("Source").fill(source)
        # The empty form would not even be sent.
        page.get_by_label("Token").fill("wrong")
        with page.expect_response("**/submit.html") as answered:
            page.get_by_role("button", name="Grade it").click()
        assert answered.value.status == 403
        told = page.get_by_role("alert").inner_text()
        assert told == "The token is wrong; ask for yours, or see what the server printed when it started."
        assert page.get_by_label("Source").input_value() == source
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Grade it").click()
        page.wait_for_url("**/submitted/*.html")
        page.wait_for_url("**/verdicts/1.html", timeout=240_000)
        assert "correct" in page.get_by_role("heading", level=1).inner_text()
        assert page.title() == "ann on tiny: correct"
