"""A headless Chromium, installed if it can be; tests that need it skip elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest


def _install() -> str | None:
    """Have Debian's Chromium and its driver; returns why not."""
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return None
    if os.name != "posix" or not shutil.which("apt-get") or os.geteuid() != 0:
        return "Chromium and chromedriver are not installed, and this user cannot install them"
    command = ["apt-get", "install", "-y", "-qq", "chromium", "chromium-driver"]
    unasked = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, capture_output=True, text=True, env=unasked)
    return None if done.returncode == 0 else f"Chromium could not be installed: {done.stderr.strip()[-200:]}"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    reason = _install()
    if reason is not None:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()
