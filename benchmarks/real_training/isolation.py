"""A machine for each rank: a network namespace on a bridge of its own, and cgroups (v1) that hold one core.

The host's own network is not touched: the bridge too lives in a namespace. Cleaning up is the work of a second process,
the janitor, which waits until the first one is gone, by whatever end, and then removes all that bears the run's name.
Started as a program, this file is the janitor: ``isolation.py PREFIX``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

__all__ = ["NO_LIMIT", "Isolation", "NotPossible", "Rank", "cgroup_folders", "leftovers", "sh"]

CONTROLLERS = ("cpu", "cpuacct", "blkio")
PERIOD_US = 100_000
LONGEST_END_SECONDS = 20.0
#: Bytes a second that no disk writes. Without a limit the kernel does not count a group's bytes at all.
NO_LIMIT = 10**12


class NotPossible(Exception):
    """This host cannot do it; the message says what is missing and what to do."""


@dataclass(slots=True)
class Rank:
    """One rank and the machine it runs on."""

    index: int
    namespace: str
    address: str
    cgroups: Mapping[str, Path]
    """Controller -> folder; ``unified`` where there is a cgroup v2 hierarchy, for pressure."""
    disk: str
    """Number of the whole disk that its files are on."""
    pid: int = 0

    @property
    def name(self) -> str:
        return f"rank{self.index}"

    def set_cores(self, cores: float) -> None:
        """How much CPU the machine has; below a hundredth of a core the kernel refuses."""
        (self.cgroups["cpu"] / "cpu.cfs_quota_us").write_text(str(round(max(cores, 0.01) * PERIOD_US)))

    def limit_writes(self, bytes_per_second: int) -> None:
        """How fast the machine's disk takes what does not go through the page cache."""
        (self.cgroups["blkio"] / "blkio.throttle.write_bps_device").write_text(f"{self.disk} {bytes_per_second}")

    def run(self, command: Sequence[str]) -> None:
        """Run a program in the rank's network namespace and wait for it.

        Raises:
            NotPossible: it failed; the message has its words.
        """
        sh("ip", "netns", "exec", self.namespace, *command)

    def start(
        self, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program on the rank's machine; its pid is that of the program itself."""
        enter = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
        folders = [str(folder) for folder in dict.fromkeys(self.cgroups.values())]
        with output.open("ab") as stream:
            return subprocess.Popen(
                ["sh", "-c", enter, "sh", *folders, "--", "ip", "netns", "exec", self.namespace, *command],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,  # Ctrl-C is for the one who started all, who then ends them in order
            )


def sh(*command: str) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        NotPossible: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPossible(f"{' '.join(command)}: {(done.stderr or done.stdout).strip() or done.returncode}")
    return done.stdout


def cgroup_folders() -> dict[str, Path]:
    """Where this process may make cgroups: controller -> the folder of its own group.

    Raises:
        NotPossible: a controller that is needed is not mounted as cgroup v1.
    """
    mounts: dict[str, tuple[Path, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        root, place = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup":
            mounts |= {name: (Path(place), root) for name in options.split(",") if name in CONTROLLERS}
        elif kind == "cgroup2":
            mounts["unified"] = (Path(place), root)
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, names, path_inside = line.split(":", 2)
        own |= dict.fromkeys(["unified"] if number == "0" else names.split(","), path_inside)
    missing = [name for name in CONTROLLERS if name not in mounts]
    if missing:
        raise NotPossible(
            f"no cgroup v1 controller {', '.join(missing)} is mounted: boot with systemd.unified_cgroup_hierarchy=0, "
            "or mount it by hand"
        )
    folders = {}
    for name, (mounted, top) in mounts.items():
        folder = mounted / own[name].removeprefix(top).lstrip("/")
        folders[name] = folder if folder.is_dir() else mounted
    return folders


def disk_of(folder: Path) -> str:
    """The number of the whole disk that a folder is on.

    Raises:
        NotPossible: it is on none.
    """
    device = folder.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not place.exists():
        raise NotPossible(f"{folder} is on no disk of its own: choose a folder on a block device with -o")
    place = place.resolve()
    return ((place.parent if (place / "partition").exists() else place) / "dev").read_text().strip()


class Isolation:
    """As many machines as there are ranks, from ``with`` to its end or to that of this process.

    Args:
        folder: where the ranks keep their files.
        programs: what else must be installed.

    Raises:
        NotPossible: not root, a program or a controller is missing, or the kernel refuses.
    """

    def __init__(self, ranks: int, folder: Path, programs: Sequence[str] = ()) -> None:
        self.prefix = f"tmreal{os.getpid()}"
        self._count, self._folder = ranks, folder
        self._programs = ("ip", "tc", *programs)
        self._janitor: subprocess.Popen[bytes] | None = None
        self.ranks: tuple[Rank, ...] = ()

    def __enter__(self) -> Isolation:
        if os.geteuid() != 0:
            raise NotPossible("network namespaces and cgroups need root: run this as root, or with sudo")
        missing = [name for name in self._programs if shutil.which(name) is None]
        if missing:
            raise NotPossible(f"{', '.join(missing)} not found: run tools/install_servers.sh")
        folders = cgroup_folders()
        self._janitor = subprocess.Popen(
            [sys.executable, __file__, self.prefix], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._make(folders)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything; returns when it is gone."""
        if self._janitor is None or self._janitor.stdin is None:
            return
        self._janitor.stdin.close()
        self._janitor.wait()
        self._janitor = None

    def _make(self, folders: Mapping[str, Path]) -> None:
        switch, disk = f"{self.prefix}-switch", disk_of(self._folder)
        sh("ip", "netns", "add", switch)
        sh("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", switch, "link", "set", "br0", "up")
        ranks = []
        for index in range(self._count):
            name, address = f"{self.prefix}-{index}", f"10.77.0.{index + 1}"
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
            port = f"port{index}"
            sh("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            sh("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            cgroups = {controller: folder / name for controller, folder in folders.items()}
            for folder in dict.fromkeys(cgroups.values()):
                folder.mkdir()
            rank = Rank(index, name, address, cgroups, disk)
            (cgroups["cpu"] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            rank.set_cores(1.0)
            rank.limit_writes(NO_LIMIT)
            ranks.append(rank)
        self.ranks = tuple(ranks)


def leftovers(prefix: str) -> list[str]:
    """Network namespaces and cgroups that bear this run's name."""
    spaces = [line.split()[0] for line in sh("ip", "netns", "list").splitlines() if line.startswith(f"{prefix}-")]
    groups = [folder for parent in dict.fromkeys(cgroup_folders().values()) for folder in parent.glob(f"{prefix}-*")]
    return [*spaces, *map(str, groups)]


def clean(prefix: str) -> None:
    """End what runs on the machines of a run, by process id, and remove them."""
    groups = [folder for parent in dict.fromkeys(cgroup_folders().values()) for folder in parent.glob(f"{prefix}-*")]
    deadline = time.monotonic() + LONGEST_END_SECONDS
    while time.monotonic() < deadline:
        pids = {int(pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()}
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for name in leftovers(prefix):
        if name.startswith("/"):
            Path(name).rmdir()
        else:
            sh("ip", "netns", "del", name)


def main() -> None:
    # The end of standard input is the end of the one who made the machines.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clean(sys.argv[1])


if __name__ == "__main__":
    main()
