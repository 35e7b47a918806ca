"""The engine of a Ray cluster.

Each worker is a Ray actor that hosts some watches. The driver asks every watch for one step at a time, and holds the
last state that each one saved. A worker that dies, or is lost with its machine, is replaced, and its watches begin from
these states elsewhere; what they tell again is known by its instant and passed over.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from trainminder.allocator import keep_freed_memory
from trainminder.engine import Make, Watch
from trainminder.errors import EngineError, MissingExtra, TrainminderError

__all__ = ["OnRay"]

#: So often in a row may workers die over one piece of work; then it is the work's doing.
MOST_DEATHS = 3
SAVE_SECONDS = 10.0
#: Jobs handed out for each processor, so that none waits for the next.
JOBS_PER_CPU = 2

Given = TypeVar("Given")
Made = TypeVar("Made")


def _done(work: Callable[[Given], Made], given: Given) -> Made:
    keep_freed_memory()
    return work(given)


class _Host:
    """A worker: the watches that it hosts. Of each step it gives the moment, and the state if it was saved."""

    def __init__(self, save_seconds: float) -> None:
        keep_freed_memory()
        self._save_seconds = save_seconds
        self._watches: dict[str, Watch] = {}
        self._saved_at: dict[str, float] = {}

    def begin(self, name: str, make: Make, saved: bytes | None) -> tuple[Any, bytes | None]:
        """Take a watch in, and take its first step."""
        self._watches[name], self._saved_at[name] = make(saved), time.monotonic()
        return self.step(name)

    def step(self, name: str) -> tuple[Any, bytes | None]:
        """The next step of a watch."""
        watch = self._watches[name]
        moment, now = watch.step(), time.monotonic()
        if moment is None:
            del self._watches[name]
        elif now - self._saved_at[name] < self._save_seconds:
            return moment, None
        self._saved_at[name] = now
        return moment, watch.saved()


class OnRay:
    """An ``Engine`` over the cluster that ``RAY_ADDRESS`` names, or over a local one that is started for it.

    Args:
        save_seconds: a watch is saved at most this often: saving costs, and so does telling it all once more.
    Raises:
        MissingExtra: Ray is not installed.
        EngineError: the cluster cannot be reached, or has no processor.
    """

    def __init__(self, save_seconds: float = SAVE_SECONDS) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("--engine ray", "scale") from None
        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            if "RAY_ADDRESS" not in os.environ:
                # A cluster for this process alone: it tells nobody of its use, and keeps no token at home.
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                os.environ.setdefault("RAY_AUTH_MODE", "disabled")
            try:
                ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise EngineError(f"the Ray cluster cannot be reached: {error}: see RAY_ADDRESS") from error
        self.workers = int(ray.cluster_resources().get("CPU", 0))
        if self.workers < 1:
            raise EngineError("the Ray cluster has no processor: start it with --num-cpus")
        self._save_seconds = save_seconds
        self._watching: _Watching | None = None

    def __enter__(self) -> OnRay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.close()
        if self._is_ours:
            self._ray.shutdown()

    def map(self, work: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
        """As ``Engine.map``; a job whose worker dies is done again by another."""
        job = self._ray.remote(num_cpus=1, max_retries=MOST_DEATHS)(_done)
        pending: deque[Any] = deque()
        for each in given:
            pending.append(job.remote(work, each))
            if len(pending) >= JOBS_PER_CPU * self.workers:
                yield self._got(pending.popleft())
        while pending:
            yield self._got(pending.popleft())

    def watch(self, makes: Mapping[str, Make]) -> Iterator[tuple[str, Any]]:
        """As ``Engine.watch``; watches are spread over as many workers as there are processors."""
        self._watching = _Watching(self._ray, self.workers, self._save_seconds, makes)
        return self._watching.moments()

    def saved(self, name: str) -> bytes | None:
        """As ``Engine.saved``: the last state that came."""
        return None if self._watching is None else self._watching.saved[name]

    def _got(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise _cause_of(error) from None
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
            raise EngineError(
                f"a worker died {MOST_DEATHS + 1} times over one job: if memory ran out, give Ray fewer processors "
                f"({_first_line(error)})"
            ) from error


class _Watching:
    """Watches under way: who hosts which, and what each one saved last."""

    def __init__(self, ray: Any, workers: int, save_seconds: float, makes: Mapping[str, Make]) -> None:
        self._ray, self._workers, self._save_seconds, self._makes = ray, workers, save_seconds, makes
        self._hosts: list[Any] = []
        self.saved: dict[str, bytes | None] = dict.fromkeys(makes)
        self._reached: dict[str, float] = {}
        self._deaths: dict[str, int] = dict.fromkeys(makes, 0)
        self._host_of: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}

    def moments(self) -> Iterator[tuple[str, Any]]:
        """All that the watches tell, as it comes."""
        try:
            hosts = [self._new_host() for _ in range(min(self._workers, len(self._makes)))]
            for number, name in enumerate(self._makes):
                self._begin(name, hosts[number % len(hosts)])
            yield from self._told()
        finally:
            self.close()

    def close(self) -> None:
        """Let the workers go: a processor is theirs for as long as they live."""
        for host in self._hosts:
            self._ray.kill(host)
        self._hosts.clear()

    def _told(self) -> Iterator[tuple[str, Any]]:
        while self._pending:
            (ready,), _ = self._ray.wait(list(self._pending), num_returns=1)
            name = self._pending.pop(ready)
            try:
                moment, saved = self._ray.get(ready)
            except self._ray.exceptions.RayTaskError as error:
                raise _cause_of(error) from None
            except self._ray.exceptions.RayActorError as error:
                self._bury(self._host_of[name], name, error)
                continue
            self.saved[name] = self.saved[name] if saved is None else saved
            if moment is None:
                del self._host_of[name]
                continue
            self._pending[self._host_of[name].step.remote(name)] = name
            # What was told before its worker died is not told again.
            if moment.at > self._reached.get(name, -math.inf):
                self._reached[name], self._deaths[name] = moment.at, 0
                yield name, moment

    def _new_host(self) -> Any:
        host = self._ray.remote(num_cpus=1, max_restarts=0)(_Host).remote(self._save_seconds)
        self._hosts.append(host)
        return host

    def _begin(self, name: str, host: Any) -> None:
        self._host_of[name] = host
        self._pending[host.begin.remote(name, self._makes[name], self.saved[name])] = name

    def _bury(self, dead: Any, found_by: str, error: Exception) -> None:
        """Let the watches of a worker that died go on in another."""
        self._deaths[found_by] += 1
        if self._deaths[found_by] > MOST_DEATHS:
            raise EngineError(
                f"task {found_by}: its worker died {self._deaths[found_by]} times without getting any further: if "
                f"memory ran out, give Ray fewer processors ({_first_line(error)})"
            ) from error
        self._hosts.remove(dead)
        host = self._new_host()
        for name in [each for each, its in self._host_of.items() if its is dead]:
            self._pending = {reference: other for reference, other in self._pending.items() if other != name}
            self._begin(name, host)


def _cause_of(error: Any) -> BaseException:
    """What was raised in a worker, without Ray's wrapping where it is an error of ours."""
    cause: BaseException | None = getattr(error, "cause", None)
    return cause if isinstance(cause, TrainminderError) else error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
