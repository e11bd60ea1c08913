"""The charts in a real browser, on a phone and on a desktop: no text is cut off, and none covers another."""

import pytest

from grader.verdict.models import Status
from tests import samples
from tests.report.test_site import GPU, Site

pytestmark = pytest.mark.browser

LONG = "conv_transpose3d_leaky_relu_mul_leaky_relu_max_with_residual"
FAULTS = """[...document.querySelectorAll("svg.chart")].flatMap((chart) => {
    const frame = chart.getBoundingClientRect();
    const shown = [...chart.querySelectorAll("text")].filter((one) => one.getBoundingClientRect().width);
    const boxes = shown.map((one) => ({ text: one.textContent, box: one.getBoundingClientRect() }));
    const cut = boxes.filter(({ box }) => box.left < frame.left - 1 || box.right > frame.right + 1
        || box.right > innerWidth || box.bottom > frame.bottom + 3 || box.top < frame.top - 3);
    const small = boxes.filter(({ box }) => box.height < 11);
    const covered = boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) =>
        Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left) > 0
        && Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top) > 3)
        .map((b) => `${chart.id}: ${a.text} and ${b.text}`));
    return [...cut.map(({ text }) => `${chart.id}: ${text} is cut`),
            ...small.map(({ text }) => `${chart.id}: ${text} is small`), ...covered];
})"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Figures at the ends of the scales: a long name, wide and narrow intervals, shares of 0.02% and of 97%."""
    site = Site(tmp_path_factory.mktemp("report"))
    for number, (speedup, margin, share) in enumerate(
        ((0.03, 0.3, 2e-4), (0.9, 0.99, 0.97), (1.02, 0.9, 0.05), (30.0, 0.2, 0.3))
    ):
        problem = LONG if number % 2 else "mlp"
        times = tuple(100.0 + 7 * at % 5 for at in range(9))
        phase = samples.phase(
            speedup, margin, bound_ms=share, candidate_samples_ms=times, reference_samples_ms=(*times[1:], 100.5)
        )
        timing = samples.verdict().timing.model_copy(
            update={"forward": phase, "backward": phase, "total": phase, "variant": "full"}
        )
        site.save(f"author{number}", problem, text=f"n = {number}\n", where=GPU, timing=timing, minute=number)
    site.save("bob", status=Status.MISSING_BACKWARD, text="b = 1\n", where=GPU)
    site.write()
    site.store.close()
    return site.folder / "out"


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", ["index", f"problems/{LONG}", "verdicts/2", "verdicts/1", "verdicts/4"])
def test_no_text_of_a_chart_is_cut_small_or_covered(browser, folder, name, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(folder.joinpath(f"{name}.html").as_uri())
    assert page.locator("svg.chart text").count() > 3
    assert page.evaluate(FAULTS) == []
    page.close()
