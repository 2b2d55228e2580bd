"""What operators ask of the worker and of the configuration (protocol 8), and SIGHUP.

The daemon's loop calls. The configuration is a small local file, read in the loop as at the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from edged import config as configuration
from edged import keyring
from edged import messages as m
from edged.broker.broker import Broker
from edged.config import Config
from edged.errors import Code, ConfigError, WireError
from edged.keyring import Keyring
from edged.observe import unapplied
from edged.observe.log import Log
from edged.watchdog.change import Wish
from edged.watchdog.line import Step
from edged.watchdog.plan import Plan
from edged.watchdog.supervisor import Supervisor
from edged.watchside import WatchSide, names
from edged.wire.endpoints import Endpoints
from edged.workerside import WorkerSide

_UNLOADED_RETRY_MS: Final = 10_000

Verb = m.Reload | m.ProfileRequest | m.ConfigRequest


class OperatorSide:
    """`apply` puts a new configuration in force in the loop itself, `revoke` ends connections of keys that are gone,
    `announce` tells everybody what happened."""

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        broker: Broker,
        endpoints: Endpoints,
        *,
        worker: WorkerSide,
        watch: WatchSide,
        apply: Callable[[Config], None],
        revoke: Callable[[float], None],
        announce: Callable[[str], None],
        log: Log,
    ) -> None:
        self._config = config
        self._supervisor = supervisor
        self._broker = broker
        self._endpoints = endpoints
        self._worker = worker
        self._watch = watch
        self._apply = apply
        self._revoke = revoke
        self._announce = announce
        self._log = log
        self._refusal = ""
        self._kept: list[str] = []

    def warnings(self) -> list[str]:
        """What lies on the disk and is not in force, until it is, or is read again."""
        return [*([self._refusal] if self._refusal else []), *map(unapplied.kept, self._kept)]

    def asked(self, verb: Verb, now: float) -> dict[str, Any]:
        """The reply's fields. Raises WireError."""
        match verb:
            case m.Reload():
                return self._reload(verb.profile, now)
            case m.ProfileRequest():
                return self._profile(verb, now)
            case m.ConfigRequest(action=action):
                return self._configuration(now, apply=action == "apply")

    # ---- the configuration -----------------------------------------------------------------------------------

    def hangup(self, now: float) -> None:
        """SIGHUP: all of the new configuration and of the keys, or nothing."""
        try:
            self._configure(*self._read(), now)
        except ConfigError as error:
            self._log.error("configuration_refused", error=str(error))
            self._announce("configuration_refused")  # not why: the error holds what was found there
            self._refused(error)

    def _refused(self, error: ConfigError) -> None:
        self._refusal = unapplied.refusal(error, time.strftime("%H:%M"))

    def _configuration(self, now: float, *, apply: bool) -> dict[str, Any]:
        try:
            config, keys = self._read()
        except ConfigError as error:
            if apply:
                self._refused(error)
            raise WireError(Code.BAD_REQUEST, str(error)) from None
        fields: dict[str, Any] = {"config": config.path, "applied": apply}
        if self._endpoints.differ(config):
            fields["needs_restart"] = ["listen", "runtime_dir"]
        return fields | ({"reloading": self._configure(config, keys, now)} if apply else {})

    def _read(self) -> tuple[Config, Keyring | None]:
        """The keys are those for the endpoints that are bound; those of the configuration must be right too."""
        config = configuration.load(None if self._config.path == "defaults" else self._config.path, again=True)
        keys = keyring.load(config)
        if self._endpoints.differ(config):
            keys = keyring.load(msgspec.structs.replace(config, listen=self._config.listen))
        return config, keys

    def _rekey(self, keys: Keyring | None, now: float) -> None:
        """Only client keys change while it runs."""
        if (None if keys is None else keys.public) != self._endpoints.public_key:
            self._log.warning("server_key_unchanged", why="the key of the box changes at a restart only")
            self._kept.append("the server key")
        if keys is not None and self._endpoints.rekey(keys):
            self._log.warning("keys_revoked", why="their connections are cut")
            self._revoke(now)

    def _configure(self, config: Config, keys: Keyring | None, now: float) -> bool:
        """Whether the worker is replaced for it."""
        self._refusal, self._kept = "", []
        if self._endpoints.differ(config):
            self._log.warning("listen_unchanged", why="endpoints change at a restart only")
            self._kept.append("listen or runtime_dir")
            config = msgspec.structs.replace(config, listen=self._config.listen, runtime_dir=self._config.runtime_dir)
        if (config.journal, config.state_dir) != (self._config.journal, self._config.state_dir):
            self._log.warning("journal_unchanged", why="journal and state_dir change at a restart only")
            self._kept.append("journal or state_dir")
            config = msgspec.structs.replace(config, journal=self._config.journal, state_dir=self._config.state_dir)
        self._config = config
        name = self._watch.wanted
        self._apply(config)
        self._rekey(keys, now)
        self._worker.healed()
        self._watch.reconfigure(config)
        plan = Plan(config, self._index(config, name))
        reloading = self._supervisor.reconfigure(plan, now)
        self._watch.chosen(plan.index, now)
        self._log.info("configuration_applied", config=config.path, reloading=reloading)
        self._announce("configuration_applied")
        return reloading

    def _index(self, config: Config, name: str) -> int:
        """The profile of the same name as now, if there still is one; deaths are forgotten."""
        name = self._watch.pinned or name
        return names(config).index(name) if name in names(config) else 0

    # ---- the worker ------------------------------------------------------------------------------------------

    def _reload(self, name: str | None, now: float) -> dict[str, Any]:
        index = self._index(self._config, self._watch.wanted) if name is None else self._named(name)
        if self._watch.pinned is not None and name not in (None, self._watch.pinned):
            raise WireError(Code.BAD_REQUEST, f"profile {self._watch.pinned} is pinned: `profile` with `auto` first")
        why = self._watch.refused
        if why:
            code = self._broker.gate.code or Code.UNAVAILABLE
            raise WireError(code, f"the model is unloaded: {why}", self._broker.gate.retry_after_ms)
        plan = Plan(self._config, index)
        self._run(plan, "reload", now)
        return {"state": "reloading", "profile": plan.profile.name}

    def _run(self, plan: Plan, reason: str, now: float) -> None:
        """Deaths are forgotten: an operator knows better."""
        self._log.info("asked_to_reload", profile=plan.profile.name, reason=reason)
        self._worker.healed()
        self._supervisor.forget(self._config)
        self._watch.chosen(plan.index, now)
        self._supervisor.replace(Wish(plan, reason), now)
        self._watch.load(now)

    def _profile(self, verb: m.ProfileRequest, now: float) -> dict[str, Any]:
        if verb.auto:
            self._watch.pin(None)
            self._log.info("unpinned")
        elif verb.profile is not None:
            index = self._named(verb.profile)
            self._watch.pin(verb.profile)
            self._log.info("pinned", profile=verb.profile)
            plan = Plan(self._config, index)
            if plan.differs(self._supervisor.wanted) or self._supervisor.step is Step.UNLOADED:
                self._run(plan, "profile", now)
        return self._profiles()

    def _named(self, name: str) -> int:
        known = names(self._config)
        if name not in known:
            raise WireError(Code.BAD_REQUEST, f"no profile {name!r:.70}; there are {', '.join(known)}")
        return known.index(name)

    def _profiles(self) -> dict[str, Any]:
        """Sizes as far as a header was read; `available` counts what the model at hand would give back."""
        supervisor = self._supervisor
        serving = supervisor.crew.serving
        room = self._watch.available
        available = None if room is None else room + (serving.need if serving else 0)
        rows = []
        for index, profile in enumerate(self._config.profiles):
            need = supervisor.need_of(Plan(self._config, index))
            row = {"name": profile.name, "context": profile.context, "sequences": profile.sequences}
            row["file"] = (profile.model or self._config.model.path).rpartition("/")[2]
            row["current"] = serving is not None and supervisor.plan.profile.name == profile.name
            row["need_mb"] = None if need is None else need >> 20
            row["fits"] = None if need is None or available is None else need <= available
            rows.append(row)
        wanted = self._watch.wanted
        available_mb = None if available is None else available >> 20
        return {"profiles": rows, "wanted": wanted, "pinned": self._watch.pinned, "available_mb": available_mb}
