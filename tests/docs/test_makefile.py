"""``make`` on machines that lack something says what is missing and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """A folder with nothing but what ``make`` reads first."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(repository / name, folder)
    return folder


def stand_in(folder: Path, name: str, script: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def made(checkout: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}"], cwd=checkout, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_python_that_is_not_there_is_named(checkout: Path, tmp_path: Path) -> None:
    done = made(checkout, tmp_path / "python9")
    assert done.returncode != 0
    assert f"error: {tmp_path}/python9 is not there: install Python 3.11 or newer" in done.stderr


def test_an_old_python_is_refused_with_its_version(checkout: Path, tmp_path: Path) -> None:
    old = stand_in(tmp_path, "python3", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac')
    done = made(checkout, old)
    assert done.returncode != 0
    assert "is Python 3.9.2, and Python 3.11 or newer is needed: say make PYTHON=python3.11" in done.stderr


def test_a_python_without_ensurepip_is_refused_with_the_package_to_install(checkout: Path, tmp_path: Path) -> None:
    bare = stand_in(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    done = made(checkout, bare)
    assert done.returncode != 0
    assert "cannot make virtual environments" in done.stderr
    assert "python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_what_two_methods_of_the_bench_run_in_is_installed_once_and_leaves_nothing_in_the_checkout(
    checkout: Path, tmp_path: Path
) -> None:
    """The environment is made already; ``python`` and ``npm`` are stand-ins, of which the second notes its calls."""
    augurs = checkout / "src" / "trainminder" / "bench" / "methods" / "augurs.py"
    augurs.parent.mkdir(parents=True)
    augurs.touch()
    (checkout / ".venv" / "bin").mkdir(parents=True)
    for stamp in (".made", ".core", ".dev"):
        (checkout / ".venv" / stamp).touch()
    stand_in(checkout / ".venv" / "bin", "python", "echo @owner/package@1.2.3")
    commands = tmp_path / "commands"
    commands.mkdir()
    stand_in(commands, "node", "")
    stand_in(commands, "npm", f'echo "$@" >>{tmp_path}/calls')
    for _ in range(2):
        subprocess.run(
            ["make", ".venv/.node"], cwd=checkout, env={"PATH": f"{commands}:{os.environ['PATH']}"}, check=True
        )
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith("install --no-save ")
    assert call.endswith(" --prefix .venv @owner/package@1.2.3")
    assert {path.name for path in checkout.iterdir()} == {"Makefile", "pyproject.toml", "src", ".venv"}


def test_without_apt_the_missing_servers_are_named_with_what_to_do(repository: Path, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    stand_in(commands, "prometheus", "")
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, repository / "tools" / "install_servers.sh"],
        env={"PATH": str(commands)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the tests need victoria-metrics prometheus-node-exporter chromium" in done.stderr
    assert "there is no apt-get here" in done.stderr


def test_with_every_server_there_nothing_is_installed(repository: Path, tmp_path: Path) -> None:
    script = (repository / "tools" / "install_servers.sh").read_text()
    # The font is a file at a fixed place; the rest are found by name.
    here = tmp_path / "install_servers.sh"
    here.write_text(script.replace("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", str(here)))
    for name in (
        "prometheus",
        "victoria-metrics",
        "prometheus-node-exporter",
        "chromium",
        "ip",
        "iptables",
        "stress-ng",
        "node",
        "npm",
    ):
        stand_in(tmp_path, name, "")
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, here], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
