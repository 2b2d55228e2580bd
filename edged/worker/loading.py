"""From `Load` to an engine that is warm, or to a refusal with its reason.

The order matters: the file is looked at before llama.cpp sees it, memory is estimated before anything is taken,
and the prepare thread is started before the first decode (threads started later inherit a compute core).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edged import errors
from edged.messages import CacheSettings, CheckpointSettings, Load, Ready
from edged.system import cpu, gguf
from edged.system.fingerprint import fingerprint
from edged.system.memory import available_bytes
from edged.system.need import estimate, kv_bytes
from edged.worker import backends, llama
from edged.worker.archive import Archive
from edged.worker.chat import ChatTemplate
from edged.worker.checkpoints import Checkpoints
from edged.worker.engine import Engine
from edged.worker.prepare import Prepare, PromptMaker
from edged.worker.stateformat import Origin


class LoadError(Exception):
    """The model is refused. `kind` goes into LoadFailed: those of ModelFileError, "memory", "config", "engine"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Loaded(NamedTuple):
    """`archive` is None: no snapshots are kept; `checkpoints`: no cells of running requests."""

    engine: Engine
    prepare: Prepare
    archive: Archive | None
    checkpoints: Checkpoints | None
    ready: Ready


def load(request: Load, progress: Callable[[float], None]) -> Loaded:
    """Raises LoadError."""
    started = time.monotonic()
    try:
        header = gguf.check(request.model_path)
    except errors.ModelFileError as error:
        raise LoadError(error.kind, str(error)) from None
    if request.kv_type not in llama.KV_TYPES:
        raise LoadError("config", f"kv_type {request.kv_type!r} is none of {', '.join(llama.KV_TYPES)}")
    need = estimate(
        header,
        context=request.context,
        sequences=request.sequences,
        batch=request.batch,
        kv_type=request.kv_type,
    )
    have = available_bytes()
    if have is not None and need > have:
        raise LoadError("memory", f"the model needs about {need >> 20} MB, {have >> 20} MB are available")
    allowed = os.sched_getaffinity(0)
    cores = cpu.choose(
        cpu.read_cpus(),
        allowed,
        cpu.read_quota(),
        reserve=request.reserve_cores,
        threads=request.threads,
        prefill_threads=request.prefill_threads,
    )
    try:
        engine = Engine(request, cores, progress)
    except errors.EngineError as error:
        raise LoadError("engine", f"{request.model_path}: {error}") from None
    words = engine.vocabulary
    template = ChatTemplate(
        llama.model_template(engine.model), bos=words.bos_text, eos=words.eos_text, specials=words.specials
    )
    prepare = Prepare(PromptMaker(words, template), cores.spare, cells=engine.cells, exact=engine.exact)
    prepare.start()
    print_ = fingerprint(request.model_path)
    origin = _origin(request, engine, print_)
    archive = _archive(request.cache, origin, cores, prepare.wake)
    checkpoints = _checkpoints(request.checkpoints, origin, cores, prepare.wake, whole=engine.exact)
    try:
        pins = engine.warm_up()
    except errors.EngineError as error:
        raise LoadError("engine", f"{request.model_path}: the first decode failed: {error}") from None
    return Loaded(
        engine,
        prepare,
        archive,
        None if checkpoints is None or checkpoints.problem else checkpoints,
        Ready(
            name=Path(request.model_path).stem,
            architecture=header.architecture,
            description=llama.model_description(engine.model),
            parameters=llama.model_parameters(engine.model),
            size_bytes=header.file_bytes,
            train_context=llama.model_train_context(engine.model),
            context=engine.cells,
            sequences=engine.sequences,
            prefill_chunk=engine.chunk,
            vocab=words.size,
            chat_template=template.source,
            threads=pins,
            load_ms=(time.monotonic() - started) * 1000,
            kv_bytes=kv_bytes(header, engine.cells, request.kv_type),
            build=f"llama-cpp-python {llama.VERSION}: {llama.system_info()}",
            warnings=[
                *engine.warnings,
                *([template.warning] if template.warning else []),
                *(archive.warnings if archive else []),
                *([checkpoints.problem] if checkpoints and checkpoints.problem else []),
            ],
            fingerprint=print_,
            variant=backends.variant(),
        ),
    )


def _origin(request: Load, engine: Engine, print_: str) -> Origin:
    """What of a context changes the meaning of a state is in it."""
    return Origin(
        model=print_,
        context=f"kv {request.kv_type}, window {engine.window} whole, unified",
        build=f"llama-cpp-python {llama.VERSION}",
    )


def _archive(cache: CacheSettings, origin: Origin, cores: cpu.Cores, wake: int) -> Archive | None:
    """None: nothing is to be kept."""
    wanted = (cache.ram_dir and cache.ram_bytes) or (cache.disk != "off" and cache.disk_dir and cache.disk_bytes)
    return Archive(cache, origin, cores.spare, wake) if cache.reuse and wanted else None


def _checkpoints(
    settings: CheckpointSettings, origin: Origin, cores: cpu.Cores, wake: int, *, whole: bool
) -> Checkpoints | None:
    """None: none are to be made."""
    if not settings.dir or settings.bytes <= 0:
        return None
    return Checkpoints(settings, origin, cores.spare, wake, whole=whole)
