"""Methods x tasks in worker processes; whatever is finished is kept and not run again.

A worker makes a task once and gives it to every method that has yet to judge it. A method that fails is recorded with
its error and counts as having said nothing; so does one that takes its whole process down, and the run goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

from trainminder.bench.ledger import Ledger, fingerprint
from trainminder.bench.outcomes import Outcome, Said, TaskFacts
from trainminder.bench.peak import peak_mib, reset_peak
from trainminder.bench.types import BenchTask, LabelledTask, Method
from trainminder.engine import EngineName, engine_named
from trainminder.errors import BenchError, MissingExtra

__all__ = ["REGISTRY", "Advance", "default_jobs", "find_methods", "run_methods", "say_nothing", "standard_methods"]

#: Where the methods are. A name, not the methods: a fresh process imports it, whatever they hold.
REGISTRY = "trainminder.bench.methods:METHODS"

#: Each worker holds a task and what a method makes of it, up to a few GiB.
MOST_JOBS = 8

#: Variables that say how many threads a library may start: read when it is first imported.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")


class Advance(Protocol):
    """Told by the work that ``amount`` more of it is done, and what it is at."""

    def __call__(self, amount: float = 1.0, at: str | None = None) -> None: ...


def say_nothing(amount: float = 1.0, at: str | None = None) -> None:
    """For work that nobody watches."""
    del amount, at


@dataclass(frozen=True, slots=True)
class _Order:
    """A task and who judges it, at which thresholds."""

    task: BenchTask
    methods: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why the run cannot go on."""

    why: str


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    order: _Order | None = None
    facts: TaskFacts | None = None
    waiting: list[str] = field(default_factory=list)
    """Methods of the order that have not answered yet; the first is at work."""


def default_jobs() -> int:
    """As many workers as there are processors for this process, within reason."""
    return min(len(os.sched_getaffinity(0)), MOST_JOBS)


def find_methods(registry: str = REGISTRY) -> Mapping[str, Callable[[], Method]]:
    """The methods that ``module:attribute`` names."""
    module, _, attribute = registry.partition(":")
    methods: Mapping[str, Callable[[], Method]] = getattr(import_module(module), attribute)
    return methods


def standard_methods() -> tuple[str, ...]:
    """The methods of the standard comparison, in the order they are shown."""
    names: tuple[str, ...] = import_module("trainminder.bench.methods").standard_methods()
    return names


def run_methods(
    tasks: Sequence[BenchTask],
    methods: Mapping[str, Sequence[float]],
    ledger: Ledger,
    *,
    jobs: int,
    engine: EngineName = "local",
    advance: Advance = say_nothing,
    registry: str = REGISTRY,
) -> list[Outcome]:
    """Let every method judge every task, but for what the ledger holds.

    Args:
        methods: method -> the thresholds it judges at.
        jobs: worker processes of this machine. engine: ``ray`` has the workers of a cluster in their place.
        advance: told of every (task, method) that is finished.
    Returns:
        outcomes by task, then by method, in the order given.
    Raises:
        MissingExtra: a method cannot be built; or whatever else building it raises.
        BenchError: a task could not be made, its worker died while making it, or a method lacks an extra; what is
            finished is kept.
    """
    keys = {
        (task.name, name): fingerprint(task, name, thresholds) for task in tasks for name, thresholds in methods.items()
    }
    if len(keys) < len(tasks) * len(methods):
        raise BenchError("two tasks have one name: each outcome belongs to a name")
    outcomes = {pair: outcome for pair, key in keys.items() if (outcome := ledger.get(key)) is not None}
    advance(len(outcomes))
    orders = deque(
        _Order(task, wanted)
        for task in sorted(tasks, key=lambda task: -task.cost)
        if (wanted := {name: tuple(each) for name, each in methods.items() if (task.name, name) not in outcomes})
    )
    for name in dict.fromkeys(name for order in orders for name in order.methods):
        # What a method lacks is said here, before anything is run.
        find_methods(registry)[name]()
    outcomes_of = _work(orders, min(jobs, len(orders)), registry) if engine == "local" else _spread(orders, registry)
    for outcome in outcomes_of:
        pair = (outcome.task.name, outcome.method)
        ledger.add(keys[pair], outcome)
        outcomes[pair] = outcome
        advance(1, at=f"{outcome.method}, {outcome.task.name}")
    return [outcomes[pair] for pair in keys]


# ---------------------------------------------------------------- the process that hands out


def _work(orders: deque[_Order], jobs: int, registry: str) -> Iterator[Outcome]:
    workers: list[_Worker] = []
    try:
        workers += [_start(registry, jobs) for _ in range(jobs)]
        for worker in workers:
            _hand_out(worker, orders)
        while busy := {worker.pipe: worker for worker in workers if worker.order is not None}:
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                try:
                    message = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    yield _bury(worker, orders)
                    workers.remove(worker)
                    workers.append(_start(registry, jobs))
                    worker = workers[-1]
                    message = None
                if isinstance(message, _Stop):
                    raise BenchError(message.why)
                if isinstance(message, TaskFacts):
                    worker.facts = message
                if isinstance(message, Outcome):
                    worker.waiting.remove(message.method)
                    yield message
                if message is None or (worker.facts is not None and not worker.waiting):
                    _hand_out(worker, orders)
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()
            worker.pipe.close()


def _spread(orders: deque[_Order], registry: str) -> Iterator[Outcome]:
    """The same, by the workers of a cluster."""
    with engine_named("ray") as engine:
        for said in engine.map(partial(_judged, registry), list(orders)):
            for message in said:
                if isinstance(message, _Stop):
                    raise BenchError(message.why)
                if isinstance(message, Outcome):
                    yield message


def _judged(registry: str, order: _Order) -> list[TaskFacts | Outcome | _Stop]:
    return list(_answers(order, {}, registry))


def _start(registry: str, jobs: int) -> _Worker:
    ours, theirs = get_context("spawn").Pipe()
    threads = str(max(len(os.sched_getaffinity(0)) // jobs, 1))
    with _environment(dict.fromkeys(THREADS, threads)):
        process = get_context("spawn").Process(target=_serve, args=(theirs, registry), daemon=True)
        process.start()
    # The worker's end stays with it alone, so that its death is seen here.
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _hand_out(worker: _Worker, orders: deque[_Order]) -> None:
    worker.order = orders.popleft() if orders else None
    worker.facts = None
    worker.waiting = [] if worker.order is None else list(worker.order.methods)
    if worker.order is not None:
        worker.pipe.send(worker.order)


def _bury(worker: _Worker, orders: deque[_Order]) -> Outcome:
    """The outcome of the method that was at work when its process died; the others get their turn again."""
    worker.process.join()
    worker.pipe.close()
    code = worker.process.exitcode or 0
    how = f"killed by signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    remedy = "if memory ran out, run again with fewer --jobs"
    if worker.facts is None or worker.order is None:
        raise BenchError(f"the process that made task {_name_of(worker)} died ({how}): {remedy}")
    fatal, *others = worker.waiting
    thresholds = worker.order.methods[fatal]
    if others:
        orders.appendleft(_Order(worker.order.task, {name: worker.order.methods[name] for name in others}))
    return Outcome.failed(worker.facts, fatal, thresholds, f"its process died ({how}): {remedy}", 0.0)


def _name_of(worker: _Worker) -> str:
    return "" if worker.order is None else worker.order.task.name


# ---------------------------------------------------------------- the process that works


def _serve(pipe: Connection, registry: str) -> None:
    """Judge what comes through the pipe until it is closed."""
    # Ctrl-C reaches every process of the terminal: the one that hands out ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    known: dict[str, Method] = {}
    try:
        while True:
            for message in _answers(pipe.recv(), known, registry):
                pipe.send(message)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # Nobody waits for answers any more.
        return


def _answers(order: _Order, known: dict[str, Method], registry: str) -> Iterator[TaskFacts | Outcome | _Stop]:
    """What is to be known of a task, then what each method says of it."""
    try:
        task = order.task.make()
    except Exception as error:  # noqa: BLE001 - reported by the process that handed it out
        yield _Stop(f"task {order.task.name} cannot be made: {_in_words(error)}")
        return
    facts = TaskFacts.of(task, order.task)
    yield facts
    for name, thresholds in order.methods.items():
        yield _answer(name, thresholds, task, facts, known, registry)


def _answer(
    name: str,
    thresholds: tuple[float, ...],
    task: LabelledTask,
    facts: TaskFacts,
    known: dict[str, Method],
    registry: str,
) -> Outcome | _Stop:
    began = time.perf_counter()
    try:
        if name not in known:
            known[name] = find_methods(registry)[name]()
        held = reset_peak()
        began = time.perf_counter()
        judged = known[name].judge(task, thresholds)
        seconds = time.perf_counter() - began
        peak = peak_mib()
        if len(judged) != len(thresholds):
            raise ValueError(f"it answered at {len(judged)} of {len(thresholds)} thresholds")
        said = tuple(tuple(Said.of(verdict) for verdict in verdicts) for verdicts in judged)
    except MissingExtra as error:
        # No fault of the method, and no other task would fare better.
        return _Stop(f"method {name}: {error}")
    except Exception as error:  # noqa: BLE001 - a method is whatever it likes; it is named with its error
        return Outcome.failed(facts, name, thresholds, _in_words(error), time.perf_counter() - began)
    taken = None if held is None or peak is None else max(peak - held, 0.0)
    return Outcome(facts, name, thresholds, said, seconds, taken)


def _in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
