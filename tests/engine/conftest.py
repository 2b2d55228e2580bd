"""Workers for tests. Every wait has a deadline."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_rig import GREEDY, PATIENCE_S, Answer, Worker, model_path

from edged.messages import Quit

__all__ = ["GREEDY", "PATIENCE_S", "Answer", "Worker"]


@pytest.fixture(scope="session")
def model() -> Path:
    path = model_path()
    if not path.is_file():
        pytest.skip(f"no model at {path} (EDGED_TEST_MODEL)")
    return path


@pytest.fixture
def spawn(model: Path) -> Iterator[object]:
    """Workers of one test."""
    workers: list[Worker] = []

    def run(path: Path | str | None = None, **settings: object) -> Worker:
        workers.append(Worker(path or model, **settings))
        return workers[-1]

    yield run
    for worker in workers:
        worker.process.kill()
        worker.process.wait()
        worker.sock.close()


@pytest.fixture(scope="module")
def worker(model: Path) -> Iterator[Worker]:
    """One worker for a module's tests; each leaves it idle."""
    worker = Worker(model)
    worker.hello = worker.ready()
    yield worker
    worker.send(Quit())
    assert worker.process.wait(PATIENCE_S) == 0
    worker.sock.close()
