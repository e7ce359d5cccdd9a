"""What a page must be in a browser: drawn, quiet, readable aloud and on paper."""

import json
from collections.abc import Callable

from selenium import webdriver
from selenium.webdriver.common.by import By

Open = Callable[..., webdriver.Chrome]


def assert_drawn(shown: webdriver.Chrome) -> int:
    """Every figure has a drawing of some size with marks in it; returns how many there are."""
    script = """return [...document.querySelectorAll('.plot')].map(plot => {
      const drawing = plot.querySelector('svg'), box = drawing.getBoundingClientRect();
      const marks = drawing.querySelectorAll('.role-mark path, .role-mark rect, .role-mark line').length;
      return { id: plot.id, width: box.width, height: box.height, marks, broken: drawing.outerHTML.includes('NaN') };
    })"""
    plots = shown.execute_script(script)
    bad = [p for p in plots if p["width"] < 200 or p["height"] < 40 or not p["marks"] or p["broken"]]
    assert bad == []
    return len(plots)


def assert_quiet(shown: webdriver.Chrome) -> None:
    """No message in the console, and nothing asked for but the file itself."""
    assert shown.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in shown.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    own = ("data:", "chrome", "about:")  # what the page holds itself, and what the browser's own first page asks for
    assert [url for url in asked if not url.startswith(own)] == [shown.current_url]


def assert_marked_private(shown: webdriver.Chrome) -> None:
    """In the title, in a banner that stays when one scrolls, and at the end."""
    assert shown.title.startswith("PRIVATE ZONE")
    shown.execute_script("window.scrollTo(0, document.body.scrollHeight / 2)")
    banner = shown.find_element(By.CSS_SELECTOR, ".zone")
    assert "private zone" in banner.text.lower()
    assert shown.execute_script("return arguments[0].getBoundingClientRect().top", banner) == 0
    assert "may not leave" in shown.find_element(By.TAG_NAME, "footer").text


def assert_can_be_read_out(shown: webdriver.Chrome) -> None:
    """Drawings have words and numbers, tables have names, what scrolls can be reached by keyboard."""
    script = """return [
      ...document.querySelectorAll('.drawing:not([role=img][aria-label]), .plot:not(.drawing .plot)'),
      ...document.querySelectorAll('table:not(:has(caption)), figure:not(:has(figcaption):has(details tbody tr))'),
      ...[...document.querySelectorAll('.scroll, .sheet')]
        .filter(part => part.scrollWidth > part.clientWidth + 1 && part.tabIndex < 0),
    ].map(part => part.outerHTML.slice(0, 200))"""
    assert shown.execute_script(script) == []
    levels = shown.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map(part => +part.tagName[1])")
    assert levels[0] == 1
    assert 2 in levels


def assert_fits_on_paper(shown: webdriver.Chrome) -> None:
    """A4 without its margins is 182 mm wide: 688 CSS pixels. The numbers behind the figures are printed too."""
    shown.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    size = {"width": 688, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= 688
    heights = "return [...document.querySelectorAll('details table')].map(t => t.getBoundingClientRect().height)"
    assert min(shown.execute_script(heights)) > 0
