"""README.md does what it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from trainminder.cli.exits import ExitCode
from trainminder.settings import load_settings


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_readme_run_in_order(
    repository: Path, shell_environment: dict[str, str], tmp_path: Path
) -> None:
    # make is for the check of a clean clone: in here it would install into the checkout itself. What it runs stays.
    scripts = [
        block.replace("make demo\n", "trainminder demo\n").replace(". .venv/bin/activate\n", "")
        for block in blocks(repository / "README.md", "sh")
    ]
    assert scripts
    folder = tmp_path / "clone"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(scripts)],
        cwd=folder,
        env=shell_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_settings_of_the_readme_are_right(repository: Path, tmp_path: Path) -> None:
    written = blocks(repository / "README.md", "yaml")
    assert written
    for text in written:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        assert load_settings(path, {}).tasks


def test_make_demo_is_the_first_thing_the_readme_says(repository: Path) -> None:
    assert blocks(repository / "README.md", "sh")[0].startswith("make demo\n")


def test_every_link_between_documents_leads_somewhere(repository: Path) -> None:
    pages = [*repository.glob("*.md"), *repository.glob("docs/**/*.md"), *repository.glob("changelog.d/*.md")]
    dead = [
        f"{page.relative_to(repository)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert len(pages) > 5
    assert dead == []


def test_the_readme_lists_every_exit_code(repository: Path) -> None:
    listed = re.findall(r"^\| (\d+) \|", (repository / "README.md").read_text(), flags=re.MULTILINE)
    assert [int(code) for code in listed] == [int(code) for code in ExitCode]
