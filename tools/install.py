"""Installs packages for the Python that runs it: with uv where uv is on the path, else with pip.

.venv/bin/python tools/install.py -c constraints.txt -r requirements.txt

uv reads none of pip's configuration. So that both find the same packages, uv is told what pip is configured with;
uv's own variables, where they are set, come first.
"""

import ast
import os
import shutil
import subprocess
import sys

# pip's name of a setting, uv's variable for it, and what uv wants between several values (pip takes any white space)
SETTINGS = [
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("no-index", "UV_NO_INDEX", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
]
SECTIONS = ["global", "install", ":env:"]  # a later section overrides an earlier one


def pip_settings() -> dict[str, str]:
    """What ``pip install`` is configured with by files and by variables, by the names of pip."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    settings: dict[tuple[str, str], str] = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        settings[section, name] = str(ast.literal_eval(value))
    return {name: settings[section, name] for wanted in SECTIONS for section, name in settings if section == wanted}


def uv_environment() -> dict[str, str]:
    """The variables of this process, and those that give uv the settings of pip."""
    configured = pip_settings()
    handed_over = {
        variable: separator.join(configured[name].split())
        for name, variable, separator in SETTINGS
        if name in configured
    }
    # pip takes the best version of all indexes; uv alone would stop at the first index that has the package.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **handed_over, **os.environ}


def main() -> None:
    uv = shutil.which("uv")
    if uv is not None:
        command, environment = [uv, "pip", "install", "--quiet", "--python", sys.executable], uv_environment()
    else:
        # Python compiles a module when it is first imported; most modules of torch never are.
        quietly = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        command, environment = [sys.executable, "-m", "pip", "install", *quietly], dict(os.environ)
    sys.exit(subprocess.run([*command, *sys.argv[1:]], env=environment).returncode)


if __name__ == "__main__":
    main()
