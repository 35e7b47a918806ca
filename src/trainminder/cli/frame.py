"""``main``: runs a command, turns what it raises into one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

from trainminder.cli.app import app
from trainminder.cli.exits import ExitCode
from trainminder.cli.logs import is_debugging
from trainminder.errors import SettingsError, TrainminderError

__all__ = ["main"]

#: Set by the shell when it asks for completions.
_COMPLETING = "_TRAINMINDER_COMPLETE"

#: What writing standard output may end in, besides a reader that has gone.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

#: Options of the whole program that take a value, and that people write after the command too.
_GLOBAL_OPTIONS = ("--settings", "--set", "--log-level")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None: the process's.
    Returns:
        an exit code (``ExitCode``); nothing is raised for errors of any kind.
    """
    arguments = _global_options_first(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        # Flushed here, where a reader that has gone can still be handled. Started without one there is no stdout.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return ExitCode.ERROR
    except OSError as error:
        _say(f"standard output cannot be written: {error.strerror}: send it elsewhere")
        _discard_stdout()
        return ExitCode.ERROR
    return code


def _run(arguments: list[str]) -> int:
    if not arguments and _COMPLETING not in os.environ:
        # Not a success: a script whose command came out empty must not read "nothing is faulty".
        with contextlib.redirect_stdout(sys.stderr):
            _invoke(["--help"])
        return ExitCode.ERROR
    try:
        return _invoke(arguments)
    except SettingsError as error:
        _say(*error.problems)
    except TrainminderError as error:
        _say(" ".join(str(error).split("\n")))
    except typer.TyperException as error:
        _say_usage(error)
    except typer.Abort:
        _say("aborted")
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:
            raise
        _say_defect(error)
    except Exception as error:  # noqa: BLE001 - the outermost place: whatever comes here is a defect of ours
        _say_defect(error)
    return ExitCode.ERROR


def _say_defect(error: Exception) -> None:
    if is_debugging():
        import traceback

        traceback.print_exc()
    hint = "" if is_debugging() else ": this is a defect; --log-level debug shows the traceback to report"
    _say(f"unexpected {type(error).__name__}: {error}{hint}")


def _invoke(arguments: list[str]) -> int:
    try:
        result = get_command(app).main(args=arguments, prog_name="trainminder", standalone_mode=False)
    except SystemExit as end:
        # Typer ends the process itself when the reader of a pipe has gone.
        return end.code if isinstance(end.code, int) else ExitCode.ERROR
    return result if isinstance(result, int) else ExitCode.OK


def _say(*problems: str) -> None:
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)


def _say_usage(error: typer.TyperException) -> None:
    _say(" ".join(error.format_message().split()))
    context = getattr(error, "ctx", None)
    if context is not None:
        typer.echo(f'{context.get_usage()}\nTry "{context.command_path} --help".', err=True)


def _global_options_first(argv: Sequence[str]) -> list[str]:
    """Move the options of the whole program before the command, up to a lone ``--``."""
    first: list[str] = []
    rest: list[str] = []
    remaining = list(argv)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            rest += [word, *remaining]
            break
        if word in _GLOBAL_OPTIONS:
            first += [word, *remaining[:1]]
            remaining = remaining[1:]
        elif word.startswith(tuple(f"{option}=" for option in _GLOBAL_OPTIONS)):
            first.append(word)
        else:
            rest.append(word)
    return first + rest


def _discard_stdout() -> None:
    # The interpreter flushes standard output once more at its end, and would complain.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
