"""What a worker is started with: a configuration and one of its profiles. Data."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from edged.config import Config, Profile
from edged.messages import CacheSettings, CheckpointSettings, Load
from edged.system import need
from edged.system.gguf import Header


class Plan(Struct, frozen=True):
    """`index`: of the profile in `config.profiles`, 0 is the best."""

    config: Config
    index: int = 0

    @property
    def profile(self) -> Profile:
        return self.config.profiles[self.index]

    @property
    def path(self) -> str:
        return self.profile.model or self.config.model.path

    @property
    def sha256(self) -> str | None:
        """What the file must hash to; the configuration's is that of `model.path`."""
        return None if self.profile.model else self.config.model.sha256

    def smaller(self) -> Plan | None:
        return Plan(self.config, self.index + 1) if self.index + 1 < len(self.config.profiles) else None

    def need(self, header: Header) -> int:
        """Bytes of memory, estimated."""
        one = self.profile
        return need.estimate(header, context=one.context, sequences=one.sequences, batch=one.batch, kv_type=one.kv_type)

    def load(self, ram: str, live: list[str]) -> Load:
        """`ram`: a directory on a RAM file system, or "". `live`: names of the checkpoints that are wanted."""
        one, config = self.profile, self.config
        return Load(
            model_path=self.path,
            context=one.context,
            sequences=one.sequences,
            threads=one.threads,
            prefill_threads=one.prefill_threads,
            reserve_cores=config.cpu.reserve_cores,
            batch=one.batch,
            prefill_chunk=one.prefill_chunk,
            kv_type=one.kv_type,
            log_level=config.log_level,
            cache=_cache(config, ram),
            checkpoints=CheckpointSettings(os.path.join(ram, "ck") if ram else "", config.cache.checkpoint_bytes, live),
        )

    def differs(self, other: Plan) -> bool:
        """Whether a worker of this plan would have to be replaced to be one of the other."""
        return (self.sha256, _settings(self)) != (other.sha256, _settings(other))


def _settings(plan: Plan) -> Load:
    """A log level is no reason to load a model again."""
    return msgspec.structs.replace(plan.load("", []), log_level="")


def _cache(config: Config, ram: str) -> CacheSettings:
    cache = config.cache
    return CacheSettings(
        reuse=cache.reuse,
        sharing=config.security.prefix_sharing,
        ram_dir=ram,
        ram_bytes=cache.ram_bytes,
        disk_dir=os.path.join(config.state_dir, "kv"),
        disk_bytes=cache.disk_bytes,
        disk=cache.disk,
        spill_bytes=cache.spill_bytes_per_hour,
    )
