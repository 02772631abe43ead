"""Pages in a real browser: nothing is loaded or complained of, tables work, and people can read them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray

import stanadapt
import stores
from compared import PROGRAM, evil_comparison
from pages import EVIL, EVIL_LABELS, EVIL_NAME, evil_result, wide_result
from stanadapt.reports.watch import Server, Watch
from stanadapt.result.container import container
from stanadapt.result.stores.run_folder import lock

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright, which drives the browser, is not here"
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAPER = {"width": 718, "height": 1040}  # A4 with the usual margins
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1440, "height": 900}
SECONDS = 20_000.0  # milliseconds; that anything may take in a browser that shares its cores

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning"),
]


class Visit(NamedTuple):
    """A page that is open, and what happened there."""

    page: Any
    complaints: list[str]  # of the console, and errors of scripts
    requests: list[str]  # of the page; the first one is the page itself


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports: of a result with markup in its names, of many parameters, and of a run that went badly.

    And a comparison of methods, with markup in their labels.
    """
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 200)) + np.array([0.0, 0.0, 6.0, 0.0])[:, None]
    bad = container({"posterior": xarray.Dataset({"x": (("chain", "draw"), x)})})
    results = {"evil": evil_result(), "wide": wide_result(3_000, 20), "bad": bad}
    for name, result in results.items():
        stanadapt.report(result, folder / f"{name}.html", title=EVIL if name == "evil" else name)
    evil_comparison(stanadapt.Posterior(PROGRAM)).report(folder / "comparison.html")
    return {name: folder / f"{name}.html" for name in (*results, "comparison")}


@pytest.fixture
def visit(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    """Opens a page; at the end there must be no complaint, and no request beside the page's own."""
    visits: list[Visit] = []

    def open_page(name: str, *, size: dict[str, int] = DESK, **options: Any) -> Any:
        page = browser.new_context(viewport=size, **options).new_page()
        page.set_default_timeout(SECONDS)
        opened = Visit(page, [], [])
        page.on("console", lambda message: opened.complaints.append(message.text))
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("dialog", lambda dialog: opened.complaints.append(dialog.message))
        page.on("request", lambda request: opened.requests.append(request.url))
        visits.append(opened)
        page.goto(files[name].as_uri())
        return page

    yield open_page
    for each in visits:
        assert each.complaints == []
        assert [url for url in each.requests[1:] if not url.startswith("data:")] == []
        each.page.context.close()


def first_names(page: Any, table: str = "#summary") -> list[str]:
    return [each.inner_text() for each in page.query_selector_all(f"{table} tbody th")]


def numbers(page: Any, column: int) -> list[float]:
    cells = page.query_selector_all(f"#summary tbody tr > :nth-child({column})")
    return [float(cell.inner_text().split()[0]) for cell in cells]


@pytest.mark.parametrize("name", ["evil", "wide", "bad", "comparison"])
@pytest.mark.parametrize("size", [PHONE, DESK, PAPER], ids=["phone", "desk", "paper"])
def test_nothing_is_wider_than_the_window(visit: Any, name: str, size: dict[str, int]) -> None:
    page = visit(name, size=size)
    if size == PAPER:
        page.emulate_media(media="print")
    widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
    assert max(widths) == size["width"]


@pytest.mark.parametrize("name", ["evil", "comparison"])
def test_navigation_on_a_phone_shows_whole_words(visit: Any, name: str) -> None:
    page = visit(name, size=PHONE)
    links = page.locator("header nav a")
    assert links.count() >= 4
    for link in links.all():
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    assert page.evaluate("(nav => nav.scrollWidth <= nav.clientWidth)(document.querySelector('header nav'))")


def test_tables_of_a_comparison_fit_a_laptop(visit: Any) -> None:
    page = visit("comparison", size={"width": 1280, "height": 800})
    page.locator("details > summary").click()
    wider = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert page.evaluate(f"{wider}.map((each) => each.parentElement.id)") == []


def test_markup_in_names_is_text(visit: Any) -> None:
    page = visit("evil")
    assert page.inner_text("h1") == EVIL
    assert first_names(page) == [*(f"{EVIL_NAME}[{label}]" for label in EVIL_LABELS), "plain"]
    assert page.title() == f"{EVIL}: report"
    assert page.query_selector_all("main img") == []
    assert EVIL in page.inner_text("pre code.stan")
    assert page.evaluate(
        "[...document.querySelectorAll('svg text')].some((each) => each.textContent.includes('<script>'))"
    )


def test_a_comparison(visit: Any) -> None:
    page = visit("comparison")
    assert page.inner_text("#verdict .verdict").startswith(f"Serious. {EVIL} disagrees with a and b in")
    assert first_names(page, "#comparison") == ["a", "b", EVIL, "broken $x_1$", "late"]
    rates = page.locator("#comparison thead th", has_text="bulk/s")
    rates.get_by_role("button").click()
    assert set(first_names(page, "#comparison")[:3]) == {"a", "b", EVIL}
    largest = page.locator("#statistics tbody tr").first.locator("td").nth(1)
    assert largest.inner_text() == EVIL  # the largest differences come first
    assert page.locator("#statistics .state").inner_text() == "Rows 1 to 25 of 45"
    page.locator("#statistics input").fill("MU")
    assert first_names(page, "#statistics") == ["mu"] * 15
    page.locator("details > summary").click()
    assert len(first_names(page, "#runs")) == 5
    assert page.query_selector_all("main img") == []


def test_a_policy_stops_what_gets_past_the_escaping(browser: Any, files: dict[str, Path]) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(files["bad"].as_uri())
    stopped = page.evaluate(
        """() => new Promise((done) => {
          const stopped = [];
          document.addEventListener("securitypolicyviolation", (event) => {
            stopped.push(event.violatedDirective);
            if (stopped.length === 2) done(stopped);
          });
          const script = document.createElement("script");
          script.textContent = "window.evil = 1";
          const image = document.createElement("img");
          image.src = "http://127.0.0.1:9/x.png";
          document.body.append(script, image);
        })"""
    )
    assert sorted(stopped) == ["img-src", "script-src-elem"]
    assert page.evaluate("window.evil") is None
    context.close()


def test_sorting(visit: Any) -> None:
    page = visit("wide")
    own = first_names(page)
    head = page.locator("#summary thead th", has_text="R-hat")
    column = 1 + page.evaluate("(head) => head.cellIndex", head.element_handle())
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    largest = numbers(page, column)
    assert largest == sorted(largest, reverse=True)
    assert "by R-hat, descending" in page.inner_text("#summary .state")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    smallest = numbers(page, column)
    assert smallest == sorted(smallest)
    assert smallest[-1] < largest[-1]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none"
    assert first_names(page) == own
    names = page.locator("#summary thead th").first
    names.get_by_role("button").click()  # names are sorted as people count: 2 before 10
    assert first_names(page)[:3] == ["x[p0]", "x[p1]", "x[p2]"]
    names.get_by_role("button").click()
    assert first_names(page)[:3] == ["x[p2999]", "x[p2998]", "x[p2997]"]


def test_searching_and_paging(visit: Any) -> None:
    page = visit("wide")
    state = page.locator("#summary .state")
    assert state.inner_text() == "Rows 1 to 25 of 3000"
    page.get_by_role("button", name="Next").first.click()
    assert first_names(page)[0] == "x[p25]"
    box = page.get_by_label("Search").first
    box.fill("P99 x")
    assert first_names(page)[:3] == ["x[p99]", "x[p990]", "x[p991]"]
    assert state.inner_text() == "Rows 1 to 11 of 11 that match, of 3000"
    box.fill("nothing like it")
    assert state.inner_text().startswith("No rows")
    box.fill("")
    page.get_by_label("Rows").first.select_option("500")
    assert len(first_names(page)) == 500
    page.get_by_role("button", name="Next").first.click()
    assert state.inner_text() == "Rows 501 to 1000 of 3000"


def test_thousands_of_rows_do_not_freeze(visit: Any) -> None:
    """A sort of 3,000 rows and a search in them, as a share of what the browser takes to lay the page out."""
    page = visit("wide")
    sorting, layout = page.evaluate(
        """() => {
          const timed = (action) => {
            const began = performance.now();
            action();
            return performance.now() - began;
          };
          const button = document.querySelector("#summary thead th:last-child button");
          const sorting = timed(() => { for (let i = 0; i < 10; i++) button.click(); }) / 10;
          const main = document.querySelector("main");
          const layout = timed(() => { main.innerHTML = main.innerHTML; main.getBoundingClientRect(); });
          return [sorting, layout];
        }"""
    )
    assert sorting < layout


def test_keyboard(visit: Any) -> None:
    page = visit("bad", reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    link = page.get_by_role("link", name="See the picture").first
    link.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "chains"
    assert abs(page.evaluate("document.getElementById('chains').getBoundingClientRect().top")) < 200
    head = page.locator("#summary thead button").first
    head.focus()
    page.keyboard.press("Enter")
    assert page.locator("#summary thead th").first.get_attribute("aria-sort") == "ascending"
    assert page.evaluate("document.activeElement.textContent") == "Quantity"
    # Every control can be reached, and all that scrolls can be scrolled.
    stops = set()
    page.locator("body").focus()
    page.evaluate("document.activeElement.blur()")
    for _ in range(page.locator("a[href], button, input, select, [tabindex='0']").count() + 1):
        page.keyboard.press("Tab")
        stops.add(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    assert any('class="canvas"' in each for each in stops)
    assert any('class="scroll"' in each for each in stops)
    assert any('class="theme"' in each for each in stops)


NAMES = """() => {
  const wanted = "a[href], button, input, select, figure, table, svg[role=img], section, nav, [role=region]";
  const named = (id) => document.getElementById(id)?.textContent.trim();
  return [...document.querySelectorAll(wanted)].filter((each) => each.checkVisibility()).filter((each) => {
    const by = (each.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    if (by.length) return !by.every(named);
    return !(each.getAttribute("aria-label") || each.labels?.[0]?.textContent || each.textContent).trim();
  }).map((each) => each.outerHTML.slice(0, 120));
}"""


@pytest.mark.parametrize("name", ["evil", "bad", "comparison"])
def test_what_a_screen_reader_hears(visit: Any, name: str) -> None:
    page = visit(name)
    assert page.evaluate(NAMES) == []
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3')].map((each) => Number(each.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    heads = page.query_selector_all("table th")
    assert heads
    assert all(head.get_attribute("scope") in ("col", "row") for head in heads)
    assert page.query_selector_all("table:not(:has(caption))") == []
    assert page.query_selector_all("tbody tr:not(:has(th))") == []


# Texts whose contrast with what is behind them is under that of WCAG 2.2, AA.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const numbers = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const parts = numbers(colour).slice(0, 3).map((part) => part / 255);
    const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (numbers(colour)[3] === 255) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = new Set();
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, .unseen, title, desc, [aria-disabled=true]")) continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [light, dark] = [luminance(ink), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) poor.add(`${element.outerHTML.slice(0, 100)}: ${ratio.toFixed(2)}`);
  }
  return [seen, [...poor]];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["evil", "bad", "comparison"])
def test_contrast(visit: Any, name: str, scheme: str) -> None:
    page = visit(name, color_scheme=scheme)
    seen, poor = page.evaluate(CONTRAST)
    assert seen > 100
    assert poor == []


def test_light_and_dark(visit: Any) -> None:
    page = visit("bad", color_scheme="dark")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    line = "getComputedStyle(document.querySelector('#chains svg [style*=\"--x\"]')).stroke"
    dark, dark_line = page.evaluate(paper), page.evaluate(line)
    button = page.get_by_role("button", name="Theme")
    button.click()  # dark, as it was
    assert page.evaluate(paper) == dark
    button.click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate(line) != dark_line
    button.click()
    assert page.evaluate(paper) == dark
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert not page.get_by_role("button", name="Theme").is_visible()


def test_copying(visit: Any) -> None:
    page = visit("evil")
    button = page.get_by_role("button", name="Copy").first
    button.click()
    page.get_by_role("button", name="Copied").or_(page.get_by_role("button", name="Selected")).wait_for()


def test_without_scripts(browser: Any, files: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["wide"].as_uri())
    assert len(first_names(page)) == 25
    assert not page.locator("#summary .tools").is_visible()
    assert not page.get_by_role("button", name="Theme").is_visible()
    context.close()


def test_in_a_notebook(browser: Any) -> None:
    """In a frame: its styles and scripts do not meet the notebook's, and links stay within it."""
    frame_html = stanadapt.report(evil_result(), title=EVIL)._repr_html_()
    context = browser.new_context(viewport=DESK, reduced_motion="reduce")
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_content(f"<!doctype html><body><p id=outside>A notebook</p>{frame_html}</body>")
    frame = page.frame_locator("iframe")
    assert frame.locator("h1").inner_text() == EVIL
    frame.locator("#summary thead button").first.click()
    assert frame.locator("#summary thead th").first.get_attribute("aria-sort") == "ascending"
    frame.get_by_role("link", name="Model").click()
    assert frame.locator("h1").count() == 1
    inner = page.frames[1]
    assert inner.evaluate("scrollY") > 0
    assert inner.evaluate("document.activeElement.id") == "model"
    assert page.evaluate("getComputedStyle(document.getElementById('outside')).fontSize") == "16px"
    assert page.evaluate("typeof window.beginTables") == "undefined"
    assert complaints == []
    context.close()


def test_watching(browser: Any, tmp_path: Path) -> None:
    """A page is brought up to date, in the order that its reader has chosen, but not under their hands."""
    folder = tmp_path / "run"
    with stores.short_intervals(), stores.stopped_at(3):
        stores.sample(store=folder)
    watch, stop = Watch(folder), threading.Event()
    with lock(folder):
        first = next(watch.pages(stop, 0.0))
    *_, last = watch.pages(stop, 0.0)
    context = browser.new_context(viewport=PHONE, color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(SECONDS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    requests: list[str] = []
    with Server(watch, 0) as server:
        page.goto(server.address)
        page.get_by_text("The first page is being made.").wait_for()
        server.show(first)
        page.get_by_role("heading", name="The run goes on.").wait_for()
        assert page.locator("progress").count() == 2
        page.evaluate("document.querySelector('#summary thead th:last-child button').click()")
        server.show(first._replace(version=2))
        page.locator("#news", has_text="Brought up to date").wait_for()
        head = page.locator("#summary thead th").last
        assert head.get_attribute("aria-sort") == "descending"
        head.get_by_role("button").focus()
        server.show(first._replace(version=3))
        renew = page.get_by_role("button", name="Show the new checkpoint")
        renew.wait_for()
        assert page.evaluate("document.activeElement.textContent") == "R-hat"
        renew.click()
        renew.wait_for(state="hidden")
        assert page.locator("#summary thead th").last.get_attribute("aria-sort") == "descending"
        server.show(last._replace(version=4))
        page.locator("#news", has_text="The run has ended").wait_for()
        server.wait_for_browsers(0.001)
        assert page.get_by_role("heading", name="The run was killed").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert page.evaluate(CONTRAST)[1] == []
        assert server.taken == 4
    assert all(url.startswith((server.address, "data:")) for url in requests)
    assert complaints == []
    context.close()
