"""Write the reference pages of docs/ from the program itself: settings, commands, metrics.

Run: python tools/build_docs.py            write them
     python tools/build_docs.py --check    say which are out of date; exit code 1 if one is
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from trainminder.cli import main as trainminder
from trainminder.cli.app import app

DOCS = Path(__file__).resolve().parents[1] / "docs"

NOTICE = "<!-- Written by `make docs`: change the program, not this page. -->"

SETTINGS = """# Settings

Settings come from a YAML file (`--settings FILE`, or the variable `TRAINMINDER_SETTINGS`), then from the
environment, then from the command line; the later wins. In the file, a dot below is one level of nesting,
and `[]` stands for the items of a list or for names of your own. In the environment, `detect.minutes` is
`TRAINMINDER_DETECT__MINUTES`. On the command line, `--set detect.minutes=30` sets any of them.

`trainminder settings check` reports every problem at once, `trainminder settings show` prints what is in
force and where it comes from, `trainminder settings explain KEY` prints one entry of this page."""

COMMANDS = """# Commands

`--settings`, `--set` and `--log-level` may stand before or after any command. Results go to standard output,
logs and errors to standard error. [README.md](../README.md) explains the exit codes."""

METRICS = """# Metrics

The metrics that are known by name; [what a task has](metric-order.md) decides which is asked first. A recording has one
column per metric, under these names and in these units. From a store, the queries of a metric are tried in order, and
the first that finds series of the task is used: `$matcher` stands for the task's label matchers, `$rate` and `$window`
for a time range that fits the sampling interval.

`metrics:` in the settings changes any field of any of them or adds others ([settings](settings.md));
`--metric NAME[=UNIT]` admits one for a single run."""


def pages() -> dict[str, str]:
    return {
        "settings.md": f"{SETTINGS}\n\n{printed('settings', 'explain', '--format', 'markdown')}",
        "commands.md": f"{COMMANDS}\n\n" + "\n\n".join(command_sections(get_command(app), "trainminder")),
        "metrics.md": f"{METRICS}\n\n{printed('catalogue', '--format', 'markdown')}",
    }


def printed(*arguments: str) -> str:
    """What a command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = trainminder(arguments)
    if code:
        sys.exit(f"trainminder {' '.join(arguments)} exited with {code}")
    return out.getvalue().strip()


def command_sections(command: Any, path: str) -> Iterator[str]:
    """One section for the command and each under it: what it does, its arguments and options."""
    lines = [f"## {path}", "", *paragraphs(command.help or "")]
    shown = [param for param in command.params if not param.name.endswith("_completion") and param.name != "help"]
    lines += ["", *(f"- {parameter(param)}" for param in shown)] if shown else []
    yield "\n".join(lines).rstrip()
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from command_sections(inner, f"{path} {name}")


def paragraphs(text: str) -> list[str]:
    blocks = [" ".join(block.split()) for block in text.strip().split("\n\n")]
    marked = (f"Example: `{example}`" if (example := cut_example(block)) else block for block in blocks)
    return "\n\n".join(marked).split("\n")


def cut_example(block: str) -> str | None:
    return block.removeprefix("Example: ") if block.startswith("Example: ") else None


def parameter(param: Any) -> str:
    if param.param_type_name == "argument":
        name = param.metavar or param.name.upper()
        names = f"`{name}`"
    else:
        value = f" {param.metavar}" if param.metavar else ""
        names = ", ".join(f"`{option}{value}`" for option in [*param.opts, *param.secondary_opts])
    meaning = " ".join((getattr(param, "help", None) or "").split())
    variable = f" Variable: `{param.envvar}`." if getattr(param, "envvar", None) else ""
    default = f" Default: `{param.default}`." if isinstance(param.default, str | int | float) and param.default else ""
    return f"{names}: {meaning}{default}{variable}"


def main() -> int:
    for name in [name for name in os.environ if name.startswith("TRAINMINDER_")]:
        del os.environ[name]
    stale: list[str] = []
    for name, text in pages().items():
        title, _, rest = text.partition("\n")
        page, path = f"{title}\n\n{NOTICE}\n{rest}\n", DOCS / name
        if "--check" not in sys.argv:
            path.write_text(page, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page:
            stale.append(f"docs/{name}")
    if stale:
        print(f"out of date: {', '.join(stale)}: run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
