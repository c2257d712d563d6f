"""Faults of `oteval serve` under load: spans acknowledged, lost and doubled, and its reports.

    python -m benchmarks.serve_faults                       every fault
    python -m benchmarks.serve_faults --fault "clock back"  one of them

Each fault is inflicted on a running server while agent runs are sent, and requests not acknowledged
is sent again. *Missing* and *doubled* are counted in the database after all is over. *Ready* says
whether `/readyz` told the state within 5 s of the fault, and of its end; where a process begins
anew, once it has. Exit status 1 when a span
is missing and that is not said, when one is doubled, or when `/readyz` was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.otlp_load import Sent
from benchmarks.served import ROOT, Served, Sink, until
from benchmarks.under_load import fate_of, loaded

__all__ = ["FAULTS", "Found", "Scene", "inflict"]

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 1s}
"""
# Put on the path of a server's processes: they take the time of day from here.
SHIFTED = """
import os, time
_path, _time, _time_ns = os.environ["SHIFT"], time.time, time.time_ns
_known = [0.0, 0]
def _shift():
    if time.monotonic() - _known[0] > 0.05:
        try:
            with open(_path) as file:
                _known[1] = int(file.read() or 0)
        except OSError:
            pass
        _known[0] = time.monotonic()
    return _known[1]
time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + _shift() * 1_000_000_000
"""
WITHIN = 5.0


@dataclass
class Found:
    """The effect of a fault.

    Attributes:
        fault: Its name.
        acknowledged: Spans that were acknowledged.
        missing: Acknowledged spans that are not stored.
        doubled: Spans that are stored more than once.
        ready: Whether `/readyz` told the state in time.
        said: The server's report, or the log's report of a loss.
    """

    fault: str
    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0
    ready: bool = True
    said: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether everything is in order: every loss is reported."""
        is_lost_silently = self.missing and "lost" not in self.said
        return not is_lost_silently and not self.doubled and self.ready


class Scene:
    """A server under load, for a fault to be inflicted on.

    Attributes:
        server: The server.
        sink: Where it sends traces on to.
        found: The effects known so far.
    """

    def __init__(self, folder: Path, fault: str) -> None:
        """Start the server; on a separate file system for the fault that fills it."""
        self.folder = folder
        self.found = Found(fault)
        (folder / "oteval.yaml").write_text(RULES)
        (folder / "sitecustomize.py").write_text(SHIFTED)
        self._shift = folder / "shift"
        path = os.pathsep.join([str(ROOT), str(folder)])
        environment = {"PYTHONPATH": path, "SHIFT": str(self._shift)}
        self.sink = Sink()
        # Small segments, for the fault that needs some to be stored and removed.
        quota = "16MB" if fault == "WAL cut" else "256MB"
        arguments = ("--forward", self.sink.url, "--quota", quota, "--max-request", "4MB")
        self.server = Served(folder, *arguments, environment=environment)
        self.total = Sent()

    @property
    def spool(self) -> Path:
        """The spool's folder."""
        return Path(f"{self.server.db}.spool")

    def shift(self, seconds: int) -> None:
        """Set the server's clock, by so many seconds from the true time."""
        self._shift.write_text(str(seconds))

    def is_ready(self) -> bool:
        """Return whether `/readyz` says 200; a server that does not answer is not ready."""
        try:
            status, body = self.server.get("/readyz", timeout=2)
        except OSError:
            return False
        state = json.loads(body)
        if state["reasons"] or state["warnings"]:
            self.found.said = "; ".join([*state["reasons"], *state["warnings"]])
        return status == 200

    def expect(self, *, ready: bool, within: float = WITHIN) -> None:
        """Note whether `/readyz` reaches the expected state in time."""
        try:
            until(lambda: self.is_ready() == ready, within)
        except TimeoutError:
            self.found.ready = False

    def stays(self, seconds: float, *, ready: bool) -> None:
        """Note whether `/readyz` stays in the expected state for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.found.ready &= self.is_ready() == ready
            time.sleep(0.05)

    def flows(self) -> None:
        """Wait until more is acknowledged, and that is stored and scored."""
        before = len(self.total.acknowledged)
        until(lambda: len(self.total.acknowledged) > before + 100, 60)
        stored = self.server.state().get("stored", {}).get("spans", 0)
        until(lambda: self.server.state().get("stored", {}).get("spans", 0) > stored, 60)

    def close(self) -> None:
        """End all."""
        self.server.stop()
        self.sink.close()


def _killed(part: str) -> Callable[[Scene], None]:
    def fault(scene: Scene) -> None:
        scene.server.kill(part)
        if part == "storage":
            scene.expect(ready=False)
        scene.expect(ready=True, within=40)

    return fault


def _stopped(part: str) -> Callable[[Scene], None]:
    def fault(scene: Scene) -> None:
        pid = scene.server.pid(part)
        os.kill(pid, signal.SIGSTOP)
        try:
            scene.expect(ready=False)
            scene.stays(1.0, ready=False)
        finally:
            os.kill(pid, signal.SIGCONT)
        scene.expect(ready=True)

    return fault


def _full_disk(scene: Scene) -> None:
    ballast = scene.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    scene.expect(ready=False)
    scene.stays(1.0, ready=False)
    ballast.unlink()
    # A commit that failed for lack of room has the storage process begin anew.
    scene.expect(ready=True, within=40)


def _spool_moved(scene: Scene) -> None:
    away = scene.spool.with_name("away")
    scene.spool.rename(away)
    scene.expect(ready=False)
    scene.stays(2.0, ready=False)
    away.rename(scene.spool)
    scene.expect(ready=True)


def _spool_deleted(scene: Scene) -> None:
    shutil.rmtree(scene.spool, ignore_errors=True)
    scene.expect(ready=True)
    until(lambda: list(scene.spool.glob("*.spool")))


def _segment_deleted(scene: Scene) -> None:
    for path in scene.spool.glob("*.spool"):
        path.unlink(missing_ok=True)
    scene.expect(ready=True)


def _clock_set(seconds: int) -> Callable[[Scene], None]:
    def fault(scene: Scene) -> None:
        scene.shift(seconds)
        scene.flows()
        scene.stays(5.0, ready=True)
        scene.flows()

    return fault


def _socket_deleted(scene: Scene) -> None:
    socket = Path(f"{scene.server.db}.sock")
    socket.unlink()
    until(socket.exists, WITHIN)
    scene.expect(ready=True)
    scene.found.ready &= scene.server.cli("trajectories", "--limit", "1").returncode == 0


def _wal_cut(scene: Scene) -> None:
    wal = Path(f"{scene.server.db}.wal")
    # Enough that the spool's segments with the cut-off rows were removed.
    until(lambda: wal.exists() and wal.stat().st_size > 16 << 20, 120)
    storage = scene.server.pid("storage")
    os.kill(storage, signal.SIGSTOP)
    scene.server.process.kill()
    os.kill(storage, signal.SIGKILL)
    scene.server.process.wait()
    os.truncate(wal, wal.stat().st_size // 16)
    scene.server.start()
    scene.expect(ready=True, within=20)


def _endpoint_down(scene: Scene) -> None:
    scene.sink.become("away")
    until(lambda: scene.is_ready() and "forward" in scene.found.said, 20)
    scene.stays(2.0, ready=True)
    scene.sink.become("takes")
    acknowledged = set(scene.total.acknowledged)
    until(lambda: not acknowledged - scene.sink.spans.keys(), 60)


FAULTS: dict[str, Callable[[Scene], None]] = {
    "listening process killed": _killed("listener"),
    "storage process killed": _killed("storage"),
    "decoding process killed": _killed("decoder"),
    "listening process stopped": _stopped("listener"),
    "storage process stopped": _stopped("storage"),
    "decoding process stopped": _stopped("decoder"),
    "disk full": _full_disk,
    "spool moved and back": _spool_moved,
    "spool deleted": _spool_deleted,
    "segments deleted": _segment_deleted,
    "clock back 1 h": _clock_set(-3600),
    "clock on 1 h": _clock_set(3600),
    "socket deleted": _socket_deleted,
    "WAL cut": _wal_cut,
    "forward endpoint down": _endpoint_down,
}


def inflict(folder: Path, fault: str, *, rate: float = 1500.0, seed: int = 0) -> Found:
    """Inflict a fault on a server under load, and compare the stored spans.

    Args:
        folder: Where the database is.
        fault: One of `FAULTS`.
        rate: Spans a second.
        seed: Of ids and words.
    """
    scene = Scene(folder, fault)
    try:
        with loaded(scene.server, rate, seed) as scene.total:
            scene.flows()
            FAULTS[fault](scene)
            scene.flows()
        scene.server.drained()
        scene.is_ready()
    finally:
        scene.close()
    return _compared(scene)


def _compared(scene: Scene) -> Found:
    effect, fate = scene.found, fate_of(scene.server.db, scene.total)
    effect.acknowledged, effect.missing = fate.acknowledged, fate.missing
    effect.doubled = fate.doubled
    lost = [line.strip() for line in scene.server.log if "lost" in line]
    if lost and "lost" not in effect.said:
        effect.said = lost[0]
    return effect


def _inflicted(fault: str, seed: int) -> Found | None:
    """Return the effect of a fault, or None if this machine cannot run it."""
    with tempfile.TemporaryDirectory() as name:
        if fault != "disk full":
            return inflict(Path(name), fault, seed=seed)
        command = ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", name]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            return None
        try:
            return inflict(Path(name), fault, seed=seed)
        finally:
            subprocess.run(["umount", "-l", name], check=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Inflict faults, print a table of their effects, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--fault", choices=FAULTS, action="append", help="which; all by default")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true", help="a line of JSON each")
    options = parser.parse_args(arguments)
    status = 0
    if not options.json:
        print("| fault | acknowledged | missing | doubled | ready | said |")
        print("|---|---:|---:|---:|---|---|", flush=True)
    for fault in options.fault or FAULTS:
        effect = _inflicted(fault, options.seed)
        if effect is None:
            print(f"| {fault} | not tried: no separate file system can be mounted |  |  |  |  |")
            continue
        status = status or int(not effect.is_sound)
        counts = f"{effect.acknowledged} | {effect.missing} | {effect.doubled}"
        ready = "right" if effect.ready else "WRONG"
        line = f"| {fault} | {counts} | {ready} | {effect.said[:160]} |"
        print(json.dumps(asdict(effect)) if options.json else line, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
