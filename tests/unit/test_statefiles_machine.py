"""Whatever happens to the files: budgets hold, and what is loaded is what was put for these tokens and this scope."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unit.state_rig import Rig, settle

RAM, DISK = 6000, 9000
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=5)
SCOPES = st.sampled_from(["a", "b"])


class Store(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.rig = Rig(self.root)
        self.truth: dict[tuple[str, tuple[int, ...]], set[bytes]] = {}
        self.count = self.made = 0
        self.policy = "sessions"
        self.damaged = False
        self.names = pytest.MonkeyPatch()
        self.names.setattr("edged.worker.statefiles.secrets.token_hex", self.name)
        self.start()

    def name(self, _size: int) -> str:
        """In the order of their making, so that a failure can be had again."""
        self.made += 1
        return f"{self.made:04}"

    def start(self) -> None:
        self.store = self.rig.store(ram_bytes=RAM, disk_bytes=DISK, disk=self.policy)

    @rule(tokens=TOKENS, scope=SCOPES, session=st.booleans(), size=st.integers(0, 7000), untrimmable=st.booleans())
    def put(self, tokens, scope, session, size, untrimmable):
        self.count += 1
        state = self.count.to_bytes(4, "little") * (size // 4 + 1)
        self.truth.setdefault((scope, tuple(tokens)), set()).add(state)
        floor = len(tokens) if untrimmable else 0
        kept = self.store.put(tokens, scope, state, session=session, floor=floor)
        if kept and size < RAM // 2 and not self.damaged:
            settle(self.store)
            assert any(entry.scope == scope and entry.tokens.tolist() == tokens for _, entry in self.store.entries()), (
                "kept, but not to be found"
            )

    @rule(choice=st.integers(0, 50))
    def load(self, choice):
        settle(self.store)
        entries = list(self.store.entries())
        if not entries:
            return
        key, snapshot = entries[choice % len(entries)]
        data = self.store.load(key)
        if data is None:
            assert self.damaged, "lost without damage"
            assert key not in dict(self.store.entries())
        else:
            tokens = tuple(data.tokens.tolist())
            assert tokens == tuple(snapshot.tokens.tolist())
            assert bytes(data.state) in self.truth[snapshot.scope, tokens]

    @rule(choice=st.integers(0, 50), place=st.integers(0, 9000), kind=st.sampled_from(["flip", "cut", "gone", "swap"]))
    def damage(self, choice, place, kind):
        settle(self.store)
        files = sorted([*self.rig.files(self.rig.ram), *self.rig.files(self.rig.disk)])
        if not files:
            return
        self.damaged = True
        file = files[choice % len(files)]
        data = bytearray(file.read_bytes()) or bytearray(1)  # cut to nothing before
        match kind:
            case "flip":
                data[place % len(data)] ^= 1 << place % 8
                file.write_bytes(data)
            case "cut":
                file.write_bytes(data[: place % len(data)])
            case "gone":
                file.unlink()
            case "swap":  # a sound file of other tokens under this name
                shutil.copyfile(files[place % len(files)], self.root / "other")
                os.rename(self.root / "other", file)

    @rule(in_time=st.booleans())
    def persist(self, in_time):
        result = self.store.persist(self.rig.clock.now + (60 if in_time else 0))
        assert in_time or result.files == 0
        assert not in_time or result.left == 0

    @rule(remove=st.booleans(), policy=st.sampled_from(["sessions", "all", "off"]))
    def restart(self, remove, policy):
        self.store.close(remove_ram=remove, timeout=30)
        self.policy = policy
        self.start()

    @precondition(lambda self: not self.damaged)
    @invariant()
    def nothing_is_set_aside_without_damage(self):
        assert self.store.set_aside == self.store.counts.failed == 0

    @invariant()
    def budgets_hold(self):
        settle(self.store)
        assert self.store.ram.bytes <= RAM
        assert self.store.disk.bytes <= DISK
        if not self.damaged:
            assert sum(file.stat().st_size for file in self.rig.files(self.rig.ram)) == self.store.ram.bytes
            if self.store.disk.files:
                assert sum(file.stat().st_size for file in self.rig.files(self.rig.disk)) == self.store.disk.bytes

    def teardown(self) -> None:
        self.names.undo()
        self.rig.close()
        shutil.rmtree(self.root)


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=30, stateful_step_count=25)
