"""Reports in a real browser: size of the file, time to load it, to show a node and to colour the map; screenshots.

``python -m benchmarks.report_pages NAME=REPORT.html... [--out docs/images]``. Needs selenium, Chromium and its driver.
The screenshots are of the whole page at the widths of a laptop and of a phone, the phone's in dark.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import time
from pathlib import Path
from typing import Any

WIDTHS = {"laptop": 1440, "phone": 390}

DRAWN = "return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))"
CHOOSE = """const start = performance.now();
for (let i = 0; i < 50; i++) explorer.choose(arguments[0][i % arguments[0].length]);
return (performance.now() - start) / 50"""
COLOUR = """const select = document.getElementById('colour'), values = [...select.options].map(o => o.value);
const start = performance.now();
for (const value of values) { select.value = value; select.dispatchEvent(new Event('change')); }
const spent = (performance.now() - start) / values.length;
select.value = values[0];
select.dispatchEvent(new Event('change'));
return spent"""


def open_browser() -> Any:
    """A headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def visit(browser: Any, page: Path, width: int, dark: bool) -> float:
    """Open a page; returns the seconds until every chart is drawn."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    start = time.perf_counter()
    browser.get(page.resolve().as_uri())
    while not browser.execute_script(DRAWN):
        if time.perf_counter() - start > 120:
            raise TimeoutError(f"The charts of '{page}' are not drawn after two minutes.")
        time.sleep(0.02)
    return time.perf_counter() - start


def screenshot(browser: Any, path: Path, width: int) -> None:
    """The whole page, as wide as it is, as PNG."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    path.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))


def main() -> int:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", metavar="NAME=REPORT.html")
    parser.add_argument("--out", type=Path, help="the folder for screenshots")
    arguments = parser.parse_args()
    print("| report | size | load, laptop | load, phone | show a node | colour the map |\n|---|---|---|---|---|---|")
    for entry in arguments.pages:
        name, _, place = entry.partition("=")
        page, loads, steps = Path(place), [], []
        for kind, width in WIDTHS.items():
            browser = open_browser()
            try:
                loads.append(visit(browser, page, width, dark=kind == "phone"))
                names = browser.execute_script(
                    "return [...document.querySelectorAll('#panel-neighbours button:enabled')].map(b => b.textContent)"
                )
                steps.append((browser.execute_script(CHOOSE, names), browser.execute_script(COLOUR)))
                if arguments.out is not None:
                    arguments.out.mkdir(parents=True, exist_ok=True)
                    browser.execute_script("explorer.choose(arguments[0])", names[0])
                    screenshot(browser, arguments.out / f"report-{name}-{width}.png", width)
            finally:
                browser.quit()
        choose, colour = steps[0]
        print(
            f"| {name} | {page.stat().st_size / 1e6:.1f} MB | {loads[0]:.1f} s | {loads[1]:.1f} s | {choose:.0f} ms | "
            f"{colour:.0f} ms |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
