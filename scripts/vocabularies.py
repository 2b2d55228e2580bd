"""Fetches the vocabularies that llama.cpp tests its tokenizers with, and prints the directory they lie in.

They are not in a wheel, only in the source of the llama-cpp-python that edged is pinned to (77 MB, MIT licence), and
too large to lie in this repository. pip gets it, from wherever this machine's pip gets things, and checks its sha256;
then only the files named here are kept, in the cache directory. A second run finds them there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"""Both change with the pin in pyproject.toml: `pip download --no-deps --no-binary llama-cpp-python …`, `sha256sum`."""

NAMES = (
    *("bert-bge", "deepseek-coder", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "phi-3"),
    *("qwen2", "qwen35", "refact", "starcoder"),
)
"""Each way of splitting words that small models use, one vocabulary for it; 46 MB. The others are larger, or twins."""

PATIENCE_S = 200


class UnavailableError(Exception):
    pass


def directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "edged" / "vocabularies" / VERSION


def files() -> list[str]:
    return [f"ggml-vocab-{name}.gguf{end}" for name in NAMES for end in ("", ".inp", ".out")]


def there() -> bool:
    return all((directory() / name).is_file() for name in files())


def fetch() -> Path:
    """The directory, filled. Raises UnavailableError."""
    target = directory()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with (target / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once: the second waits and finds the work done
            if not there():
                _fill(target)
    except OSError as error:
        raise UnavailableError(f"{target}: {error.strerror or error}") from None
    return target


def _fill(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target) as work:
        archive = _download(Path(work))
        wanted = {f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models/{name}": name for name in files()}
        with tarfile.open(archive) as tar:
            for member in tar:
                name, content = wanted.get(member.name), tar.extractfile(member) if member.isfile() else None
                if name and content:
                    partial = Path(work) / name
                    with partial.open("wb") as out:
                        shutil.copyfileobj(content, out)
                    partial.rename(target / name)
    if not there():
        raise UnavailableError(f"the source of llama-cpp-python {VERSION} does not hold all of them")


def _download(work: Path) -> Path:
    """pip runs the package's build backend for its metadata; nothing is compiled."""
    wanted = work / "wanted.txt"
    wanted.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(work), "--requirement", str(wanted)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"pip has not got it within {PATIENCE_S} s") from None
    found = list(work.glob("*.tar.gz"))
    if done.returncode != 0 or not found:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise UnavailableError(f"pip cannot get the source of llama-cpp-python {VERSION}: {lines[-1]}")
    return found[0]


if __name__ == "__main__":
    try:
        print(fetch())  # noqa: T201
    except UnavailableError as error:
        sys.exit(f"vocabularies: {error}")
