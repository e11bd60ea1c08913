"""The static site as its readers meet it: every link leads somewhere, a stranger's text is only ever text."""

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from db import Store
from db.labels import EVERYTHING, SOLUTIONS, LabelChoice
from db.rows import counted, read_rows
from grader.cli import app
from grader.errors import UserError
from grader.report.site import write_site
from grader.report.site.boards import read_boards
from grader.report.site.code import compare, highlight
from grader.report.site.figures import FAST_P_STEPS, fast_p, funnel
from grader.report.site.formats import interval, percent, prose, times
from grader.verdict.codes import CODES
from grader.verdict.models import Device, Diagnosis, Settings, Status
from grader.verdict.precision import Precision
from grader.verdict.stages import (
    Baseline,
    ClockReading,
    KernelUse,
    StageSeconds,
    StageStatus,
    TensorCheck,
    VariantResult,
)
from tests import samples

GPU = samples.environment(Device.CUDA, "NVIDIA H200")

PAYLOADS = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'><svg onload=\"document.title='owned'\">",
    "</code></pre></title></textarea></style><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "{{ 7 * 7 }}{% raw %}",
    "../../../../tmp/owned",
    "\x00\x1b[2J\u202e\u200b\x85\U000e0041",
)
HOSTILE = " ".join(PAYLOADS)

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Page(HTMLParser):
    """Parses a page and finds fault with it: tags that do not nest, handlers, more scripts than its own."""

    def __init__(self, path):
        super().__init__()
        self.path, self.faults, self.open, self.links, self.ids, self.scripts = path, [], [], [], [], 0
        self.tags, self.text = [], []
        self.policy = ""
        self.feed(path.read_text(encoding="utf-8"))
        if self.open:
            self.faults.append(f"left open: {self.open}")
        self.faults += [f"id {one} twice" for one in {one for one in self.ids if self.ids.count(one) > 1}]

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        is_icon = (
            tag == "link" and given.get("rel") == "icon" and given["href"].startswith("data:image/svg+xml;base64,")
        )
        if tag in ("img", "iframe", "object", "embed", "base", "link", "form", "foreignobject", "use", "animate"):
            self.faults += [] if is_icon else [f"<{tag}>"]
        self.faults += [
            f"{tag} {name}" for name in given if name.startswith("on") or name in ("style", "src", "srcdoc")
        ]
        if "href" in given and not is_icon:
            self.links.append(given["href"])
        if "id" in given:
            self.ids.append(given["id"])
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_startendtag(self, tag, attributes):
        self.faults.append(f"<{tag}/>")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")
        if tag in ("td", "th"):
            self.text.append(" ")

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())


class Site:
    """Saves verdicts and reads the pages made of them."""

    def __init__(self, folder):
        self.folder = folder
        self.store = Store.open(folder / "grader.db")

    def save(self, author="ann", problem_id="scale", label=None, text="x = 1\n", problem_text="p = 1", **verdict):
        submission = samples.submission(author, problem_id, label, source=text)
        problem = samples.problem(problem_id, source=problem_text, path=Path("/problems/p.py"))
        with self.store.run([]) as run:
            made = samples.verdict(submission, problem_source=problem_text, **verdict)
            return self.store.save(made, submission, problem, run).verdict_id

    def write(self, labels=SOLUTIONS):
        self.written = write_site(self.store, self.folder / "out", labels)
        return {
            path.relative_to(self.folder / "out").as_posix(): Page(path)
            for path in sorted((self.folder / "out").rglob("*.html"))
        }


def check(pages):
    """What holds for every page of every site."""
    for name, page in pages.items():
        assert page.faults == [], name
        assert page.scripts == 1, name
        assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("header") == 1, name
        assert page.tags.count("table") == page.tags.count("caption"), name
        assert page.links[0] == "#content", name
        assert "default-src 'none'" in page.policy
        assert "unsafe" not in page.policy
        for link in page.links:
            parts = urlsplit(link)
            assert not parts.scheme, (name, link)
            assert not parts.netloc, (name, link)
            target = os.path.normpath(Path(name).parent / unquote(parts.path)) if parts.path else name
            assert target in pages, (name, link)
            assert not parts.fragment or parts.fragment in pages[target].ids, (name, link)


def full(site):
    """A bit of everything."""
    site.save("ann", total=2.0, where=GPU)
    site.save("ann", text="x = 2\n", total=3.0, where=GPU)
    site.save("bob", status=Status.MISSING_BACKWARD, where=GPU, text="b = 1\n")
    site.save("eve", status=Status.BUILD_ERROR, where=GPU, build=None, forward=None, backward=None, timing=None)
    site.save("bob", "add", where=GPU, total=0.5, text="b = 2\n")
    site.save("bob", "add", label="cpu", total=1.0, text="b = 3\n")
    site.save("eve", "add", status=Status.NOT_RUN, diagnoses=(), text="e = 2\n")


# ------------------------------------------------------------------------------------------------------- pages


def test_every_page_is_well_formed_and_every_link_leads_somewhere(site):
    full(site)
    pages = site.write()
    check(pages)
    assert site.written.pages == len(pages)
    assert {f"verdicts/{number}.html" for number in range(1, 8)} < set(pages)


def test_an_empty_database_says_what_to_do(site):
    pages = site.write()
    check(pages)
    assert set(pages) == {"index.html", "lists/1.html"}
    assert "No verdicts yet" in pages["index.html"].words


@pytest.mark.parametrize("status", Status)
def test_one_verdict_of_each_status(site, status):
    site.save(status=status)
    pages = site.write()
    check(pages)
    assert status.replace("_", " ") in pages["verdicts/1.html"].words


def test_absent_figures_are_a_dash_and_leave_no_empty_sections(site):
    nothing = {"build": None, "forward": None, "backward": None, "timing": None}
    site.save(status=Status.INVALID_SUBMISSION, text="", **nothing)
    site.save("bob", timing=None)
    pages = site.write()
    check(pages)
    ids = set(pages["verdicts/1.html"].ids)
    assert {"diagnosis", "stages", "environment"} <= ids
    assert not {"gradients", "outputs", "timing", "build-log", "source"} & ids
    assert "–" in pages["index.html"].words
    assert not re.search(r"\b(None|nan|inf)\b", pages["verdicts/2.html"].words + pages["index.html"].words)


def test_the_diagnosis_comes_first(site):
    site.save(status=Status.WRONG_OUTPUT)
    page = site.write()["verdicts/1.html"]
    wanted = ["diagnosis", "stages", "gradients", "timing", "build-log", "environment", "source"]
    assert [one for one in page.ids if one in wanted] == wanted
    assert "The output is wrong; look at index (0, 3)." in page.words


def test_a_missing_backward_stands_out_on_the_index(site):
    full(site)
    words = site.write()["index.html"].words
    assert "20% of the submissions whose forward matches have no backward (1 of 5)" in words


def test_gpu_and_cpu_boards_stand_apart(site):
    full(site)
    words = site.write()["index.html"].words
    assert words.index("NVIDIA H200 GPU") < words.index("a CPU CPU")


def test_what_never_came_to_a_device_has_no_board(site):
    site.save(status=Status.BUILD_ERROR, where=samples.environment(Device.CUDA, "none"), timing=None)
    pages = site.write()
    check(pages)
    assert "No submission is ranked yet" in pages["index.html"].words
    assert "build error 1 100%" in pages["index.html"].words


def test_it_is_compared_with_the_text_before_and_with_the_best_other(site):
    full(site)
    pages = site.write()
    assert "Compared with the author's previous source" in pages["verdicts/2.html"].words
    assert "Compared with the best other submission on the total board" in pages["verdicts/3.html"].words
    assert "Compared with" not in pages["verdicts/6.html"].words.replace(
        "Compared with the author's previous source", ""
    )


def test_a_verdict_of_another_version_has_a_short_page(site):
    full(site)
    with site.store.reading() as session:
        session.connection().exec_driver_sql("""update verdicts set document = '{"strange": 1}' where id = 2""")
        session.commit()
    pages = site.write()
    check(pages)
    assert site.written.unreadable == 1
    assert "Another version of the grader wrote this verdict" in pages["verdicts/2.html"].words


def test_a_list_goes_on_on_a_second_page(site, monkeypatch):
    monkeypatch.setattr("grader.report.site.overview_pages._MOST_VERDICTS", 3)
    full(site)
    pages = site.write()
    check(pages)
    assert {"lists/1.html", "lists/2.html", "lists/3.html"} <= set(pages)


def test_many_verdicts_are_written_by_several_processes(site, monkeypatch):
    full(site)
    alone = {name: page.path.read_text() for name, page in site.write().items()}
    monkeypatch.setattr("grader.report.site.write._PARALLEL_FROM", 1)
    monkeypatch.setattr("grader.report.site.write._BATCH", 4)
    assert {name: page.path.read_text() for name, page in site.write().items()} == alone


def test_writing_again_replaces_and_removes_what_is_gone(site):
    full(site)
    site.write()
    stale = site.folder / "out" / "verdicts" / "99.html"
    stale.write_text("old")
    site.save("new")
    pages = site.write()
    assert not stale.exists()
    assert "verdicts/8.html" in pages


def test_written_again_no_page_says_what_it_said(site, monkeypatch):
    site.save("ann", status=Status.WRONG_OUTPUT)
    page = site.write()["verdicts/1.html"]
    told = CODES["output_wrong"].meaning
    assert told in page.words
    monkeypatch.setitem(CODES, "output_wrong", CODES["output_wrong"]._replace(meaning="Told otherwise."))
    page = site.write()["verdicts/1.html"]
    assert told not in page.words
    assert "Told otherwise." in page.words


def test_a_site_has_the_title_and_the_introduction_that_it_was_given(site, tmp_path):
    site.save()
    (tmp_path / "intro.txt").write_text("Kernels of <one>\nweek.\n\nAnd more.\n")
    out = site.folder / "out"
    arguments = ["--db", str(site.folder / "grader.db"), "--title", "A & B", "--intro", str(tmp_path / "intro.txt")]
    assert CliRunner().invoke(app, ["report", "--out", str(out), *arguments]).exit_code == 0
    index = (out / "index.html").read_text()
    assert "<title>A &amp; B</title>" in index
    assert '<p class="lead">Kernels of &lt;one&gt; week.</p>\n<p class="lead">And more.</p>' in index
    assert "· A &amp; B</title>" in (out / "verdicts" / "1.html").read_text()
    assert 'rel="icon" href="data:image/svg+xml;base64,' in index


def test_a_page_says_where_a_speedup_is_not_the_ratio_of_the_times_beside_it(site):
    timing = samples.verdict(total=2.0).timing
    site.save(timing=timing)
    drifted = timing.total.model_copy(update={"reference_ms": timing.total.candidate_ms * 2.2})
    site.save(timing=timing.model_copy(update={"total": drifted}), text="x = 2\n")
    pages = site.write()
    assert "Here their ratio differs: total 2.20× instead of 2.00×" in pages["verdicts/2.html"].words
    assert "their ratio differs" not in pages["verdicts/1.html"].words


def test_small_shares_of_the_bound_are_told_apart(site):
    for number, share in enumerate((0.004, 0.0004), start=1):
        timing = samples.verdict(total=2.0).timing
        total = timing.total.model_copy(update={"bound_ms": timing.total.candidate_ms * share})
        site.save(problem_id=f"p{number}", timing=timing.model_copy(update={"total": total}), where=GPU)
    words = site.write()["index.html"].words
    assert "0.4%" in words
    assert "0.04%" in words
    assert "The axis is logarithmic" in words


def test_the_command_says_where_to_begin(site):
    full(site)
    arguments = ["report", "--out", str(site.folder / "out"), "--db", str(site.folder / "grader.db")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert done.output == f"16 pages; start at {site.folder / 'out' / 'index.html'}\n"


def test_other_peoples_files_are_left_alone(site):
    (site.folder / "out").mkdir()
    (site.folder / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        site.write()
    assert (site.folder / "out" / "thesis.tex").read_text() == "mine"


def timed_on_a_gpu(name="fused<float>"):
    """What only a GPU's verdict has: kernels, clocks, baselines, bounds."""
    bound = {"bound_ms": 0.4}
    timing = samples.verdict().timing
    return {
        "where": GPU,
        "kernels": (KernelUse(name=name, calls=3, share=0.75), KernelUse(name="copy", calls=1)),
        "seconds": StageSeconds(build=8.0, start=1.0, forward=2.5, timing=12.0),
        "peak_device_bytes": 3 << 30,
        "timing": timing.model_copy(
            update={
                "forward": samples.phase(3.0).model_copy(update={"bound_ms": 0.25}),
                "total": samples.phase(2.0).model_copy(update=bound),
                "clocks": (
                    ClockReading(round=0, sm_mhz=1980, memory_mhz=3201),
                    ClockReading(round=1, sm_mhz=1215, memory_mhz=3201, throttle_reasons=("sw_power_cap",)),
                ),
                "baselines": (Baseline(name="compile", forward_ms=1.5, total_ms=1.25),),
            }
        ),
    }


def test_a_gpus_verdict_shows_kernels_clocks_baselines_and_the_roofline_bound(site):
    site.save(**timed_on_a_gpu())
    pages = site.write()
    check(pages)
    words = pages["verdicts/1.html"].words
    assert "fused<float> 3 75%" in words
    assert "copy 1 –" in words
    assert "1 1215 3201 sw_power_cap" in words
    assert "eager 3 3.00× 2 2.00×" in words
    assert "compile fastest 1.5 1.50× fastest 1.25 1.25×" in words
    assert "Share of the roofline bound" in words
    assert "start sandbox, worker and reference 1.0" in words
    assert "Peak of device memory, all processes together: 3,072 MiB." in words


def test_the_index_shows_the_best_share_of_the_roofline_bound(site):
    site.save("ann", **timed_on_a_gpu())
    site.save("bob", text="b = 1\n", where=GPU)
    words = site.write()["index.html"].words
    assert "Roofline bound divided by the measured time: the best share on each problem" in words
    assert "scale 40% ann 25% ann" in words


def test_without_bounds_the_index_leaves_out_the_roofline_bound(site):
    site.save()
    assert "Roofline bound divided by" not in site.write()["index.html"].words


# ----------------------------------------------------------------------------------------------- hostile texts


def hostile(site, text=HOSTILE):
    """A payload wherever a submission, its compiler or its author has a say."""
    check = TensorCheck(name=text, status="failed", message=text, dtype=text)
    variant = VariantResult(variant=text, status=StageStatus.FAILED, seed=1, tensors=(check,))
    clock = ClockReading(round=0, sm_mhz=1, memory_mhz=1, throttle_reasons=(text,))
    for status in (Status.CORRECT, Status.WRONG_BACKWARD):
        made = samples.verdict(status=status)
        where = samples.environment(Device.CUDA, text)
        diagnosis = Diagnosis(
            code=text,
            stage="backward",
            message=text,
            detail={
                "consequences": [text, f"grad_zero: {text}"],
                "traceback": f"a\n{text}",
                text: [text],
                "file": text,
            },
        )
        site.save(
            author=text,
            problem_id=text,
            label=text,
            text=f"{text}\nkernel = '''#include <x>\n// {text}\n{text}'''\n# {status}",
            problem_text=text,
            status=status,
            where=where,
            diagnoses=(diagnosis,),
            labels=(text,),
            kernels=(KernelUse(name=text, calls=1),),
            settings=Settings(device=Device.CUDA, variant=None),
            build=made.build.model_copy(update={"log_tail": text, "extensions": (text,)}),
            forward=made.forward.model_copy(update={"variants": (variant,)}),
            backward=made.backward.model_copy(update={"gradients": (check,), "variants": (variant,)}),
            timing=made.timing.model_copy(update={"variant": text, "clocks": (clock,)}),
        )


@pytest.mark.parametrize("text", [*PAYLOADS, HOSTILE], ids=range(len(PAYLOADS) + 1))
def test_a_strangers_text_is_only_ever_text(site, text):
    hostile(site, text)
    pages = site.write()
    check(pages)
    for page in pages.values():
        assert not re.search("[\x00\x1b\u202e\u200b\x85\U000e0041]", page.path.read_text())
    if text.isprintable():
        assert " ".join(text.split()) in pages["verdicts/2.html"].words


def test_file_names_are_plain_words_numbers_and_hashes(site):
    hostile(site)
    site.save("ann", "1_Conv2D")
    site.save("ann", "conv2d_add")
    pages = site.write()
    assert "problems/conv2d_add.html" in pages
    assert any(re.fullmatch(r"problems/1_conv2d-[0-9a-f]{12}\.html", name) for name in pages)
    for path in (site.folder / "out").rglob("*"):
        name = path.relative_to(site.folder / "out").as_posix()
        assert re.fullmatch(r"[a-z]+(/[a-z0-9_-]+\.html)?|index\.html|\.kernel-report", name), name
    assert {path.name for path in site.folder.iterdir()} <= {"out", "grader.db", "grader.db-shm", "grader.db-wal"}


# ----------------------------------------------------------------------------------------------------- figures


def test_the_newest_verdict_on_a_text_counts(site):
    site.save(total=9.0)
    site.save(status=Status.WRONG_OUTPUT)
    site.save(settings=Settings(device=Device.CPU, variant="small"))
    site.save(status=Status.GRADER_ERROR)
    site.save("bob", status=Status.NOT_RUN, diagnoses=(), where=GPU)
    site.save("bob")
    assert [(row.author, row.status) for row in counted(read_rows(site.store))] == [
        ("ann", "wrong_output"),
        ("bob", "correct"),
    ]


def test_pages_and_boards_count_the_same_text_of_a_problem(site):
    site.save(total=2.0)
    site.save(total=3.0, problem_text="p = 2", settings=Settings(device=Device.CPU, precision=Precision.BF16))
    pages = site.write()
    assert "0 submissions" in pages["problems/scale.html"].words
    assert "2.000x" not in pages["index.html"].words


def test_the_funnel_counts_what_is_graded(site):
    full(site)
    found = funnel(counted(read_rows(site.store)))
    assert (found.graded, found.built, found.forward, found.backward) == (6, 5, 5, 4)
    assert (found.missing_backward, found.not_run) == (1, 1)


def test_fast_p_is_strictly_faster_and_counts_the_untimed_at_zero(site):
    site.save("one", total=1.0, text="1")
    site.save("two", total=2.0, text="2")
    site.save("untimed", timing=None, text="3")
    site.save("wrong", status=Status.WRONG_OUTPUT, text="4")
    figures = fast_p(counted(read_rows(site.store)))
    at = {p: figures.at(p)[0] for p in (0.0, 0.5, 1.0, 2.0)}
    assert at == {0.0: 0.75, 0.5: 0.5, 1.0: 0.25, 2.0: 0.0}
    assert len(figures.total) == len(FAST_P_STEPS)


def test_what_is_too_good_to_be_true_ranks_nowhere_and_counts_as_untimed(site):
    slow, liar = samples.phase(2.0, bound_ms=1.0), samples.phase(50.0, bound_ms=1.2)
    for author, phase in (("honest", slow), ("liar", liar)):
        timing = samples.verdict().timing.model_copy(update={"total": phase})
        site.save(author, timing=timing)
    rows = read_rows(site.store)
    board = read_boards(site.store, rows, SOLUTIONS).by_name["total"]
    (places,) = board.places.values()
    assert [(place.rank, place.row.author) for place in places] == [(1, "honest"), (None, "liar")]
    (authors,) = board.authors.values()
    assert [(one.summary.rank, one.summary.author) for one in authors] == [(1, "honest"), (None, "liar")]
    assert [one.speedup and one.speedup.value for one in authors] == [pytest.approx(places[0].speedup.value), None]
    assert fast_p(counted(rows)).at(2.0)[0] == 0.0
    assert fast_p(counted(rows)).at(0.0)[0] == 1.0


@pytest.mark.parametrize(
    ("labels", "ranked", "left_out"),
    [
        (SOLUTIONS, ["ann", "bob"], "1 submission left out"),
        (LabelChoice.of(without=["vendor_library"]), ["ann"], "2 submissions left out"),
        (LabelChoice.of(having=["vendor_library"]), ["bob"], "1 submission left out"),
        (EVERYTHING, ["eve", "ann", "bob"], None),
    ],
)
def test_boards_and_means_leave_out_what_the_labels_say(site, labels, ranked, left_out):
    site.save("ann", total=3.0)
    site.save("bob", total=2.0, labels=("vendor_library",))
    site.save("eve", total=9.0, labels=("wraps_reference", "vendor_library"))
    pages = site.write(labels)
    check(pages)
    board = read_boards(site.store, read_rows(site.store), labels).by_name["total"]
    assert [place.row.author for place in board.places["a CPU", "scale"]] == ranked
    assert [one.summary.author for one in board.authors["a CPU"]] == ranked
    words = pages["index.html"].words
    assert (left_out or "") in words
    assert ("left out, labelled" in words) == (left_out is not None)
    assert "Shares of 3 submissions" in words, "the stages are those of all"
    (problem,) = (page for name, page in pages.items() if name.startswith("problems/"))
    assert "wraps_reference, vendor_library" in problem.words


def test_an_infinite_speedup_ranks_nowhere(site):
    phase = samples.phase(2.0).model_copy(update={"ci_high": float("inf")})
    timing = samples.verdict().timing.model_copy(update={"total": phase})
    site.save(timing=timing)
    check(site.write())
    rows = read_rows(site.store)
    assert rows[0].total is None
    (places,) = read_boards(site.store, rows, SOLUTIONS).by_name["total"].places.values()
    assert [place.rank for place in places] == [None]


# -------------------------------------------------------------------------------------------------------- text


def test_highlighting_keeps_every_character_and_line():
    source = 'a = """#include <x>\n__global__ void f(int n) { // <b>\n}"""\n\nclass B:  # c\n    pass\n'
    lines = highlight(source)
    text = re.sub("<[^>]*>", "", "\n".join(lines)).replace("&lt;", "<").replace("&gt;", ">")
    assert text == source.rstrip("\n")
    assert '<i class="k">__global__</i>' in lines[1]
    assert all(line.count("<i ") == line.count("</i>") for line in lines)


def test_a_long_text_is_not_highlighted_and_not_compared():
    assert highlight("<" * 200_001) == ["&lt;" * 200_001]
    assert compare("a\n" * 1_001, "b").refused


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "end", ['"\\' * 90_000, "/*" * 90_000, "1." * 90_000, " " * 90_000 + "#", "(" * 90_000, " \n" * 90_000]
)
def test_no_text_takes_for_ever_to_highlight(end):
    assert highlight('x = """#include\n' + end)


def test_a_diff_numbers_both_sides():
    diff = compare("a\nb\nc\n", "a\nB\nc\n")
    assert [(line.kind, line.old, line.new) for line in diff.lines] == [
        ("same", 1, 1),
        ("removed", 2, None),
        ("added", None, 2),
        ("same", 3, 3),
    ]
    assert (diff.added, diff.removed) == (1, 1)


def test_figures_never_look_like_what_they_are_not():
    assert [percent(one) for one in (0, 0.004, 0.5, 0.999, 1, None)] == ["0%", "<1%", "50%", ">99%", "100%", "–"]
    assert [percent(one / 8) for one in (1, 3, 5)] == ["13%", "38%", "63%"]
    assert [times(one) for one in (2, 0.0309, 12.34, 321, None)] == ["2.00×", "0.031×", "12.3×", "321×", "–"]
    assert interval(1.0809, 1.0832) == "1.081 to 1.083×"
    assert prose("a `b` <c>") == "a <code>b</code> &lt;c&gt;"
    assert prose("a ` <c>") == "a ` &lt;c&gt;"


def test_a_verdict_that_boards_do_not_prefer_makes_no_other_an_old_one(site):
    """One in another precision stands beside it, one on a single variant on no board."""
    site.save("ann", text="x = 1\n")
    for settings in (
        Settings(device=Device.CPU, precision=Precision.BF16),
        Settings(device=Device.CPU, variant="small"),
    ):
        site.save("ann", text="x = 1\n", settings=settings)
    assert "A newer verdict" not in site.write()["verdicts/1.html"].path.read_text()
