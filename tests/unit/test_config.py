"""Every way in which a configuration can be wrong: one line naming file, key, expected, found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import config
from edged.errors import EXIT_CONFIG, ConfigError

WRONG = [
    ("limits: {queu: 3}", "limits.queu", "a key of config.yaml", "an unknown key"),
    ("modle: {}", "modle", "a key of config.yaml", "an unknown key"),
    ("path: /etc/x", "path", "a key of config.yaml", "an unknown key"),
    ("limits: {queue: many}", "limits.queue", "int", "'many'"),
    ("limits: {queue: true}", "limits.queue", "int", "True"),
    ("limits: {queue: 1.5}", "limits.queue", "int", "1.5"),
    ("limits: []", "limits", "object", "[]"),
    ("limits: {queue: 0}", "limits.queue", "int >= 1", "0"),
    ("limits: {result_ttl_s: 0}", "limits.result_ttl_s", "float > 0", "0"),
    ("defaults: {temperature: 3}", "defaults.temperature", "float <= 2.0", "3"),
    ("defaults: {max_tokens: 5000}", "defaults.max_tokens", "at most limits.max_tokens (4096)", "5000"),
    ("profiles: []", "profiles", "", "[]"),
    ("profiles: [{context: 12}]", "profiles[0].context", "int >= 256", "12"),
    ("profiles: [{name: a}, {name: b, kv_type: f32}]", "profiles[1].kv_type", "", "'f32'"),
    ("profiles: [{name: a}, {name: a}]", "profiles[1].name", "names that differ", "'a' twice"),
    ("profiles: [{batch: 8}]", "profiles[0].batch", "prefill_chunk + sequences (≥ 36)", "8"),
    ("model: {sha256: abc}", "model.sha256", "", "'abc'"),
    ("runtime_dir: here", "runtime_dir", "an absolute path", "'here'"),
    ("state_dir: ../there", "state_dir", "an absolute path", "'../there'"),
    ("listen: {request: ['ipc://relative']}", "listen.request", "ipc:///absolute/path", "'ipc://relative'"),
    ("listen: {stream: ['udp://1.2.3.4:5']}", "listen.stream", "ipc:///absolute/path", "'udp://1.2.3.4:5'"),
    ("listen: {control: 'tcp://127.0.0.1:9'}", "listen.control", "ipc:///absolute/path", "'tcp://127.0.0.1:9'"),
    ("security: {clients_dir: clients}", "security.clients_dir", "an absolute path", "'clients'"),
    ("security: {server_key: ./key}", "security.server_key", "an absolute path", "'./key'"),
    (f"listen: {{control: 'ipc:///{'x' * 120}'}}", "listen.control", "at most 107 bytes", "'/xxx"),
    ("listen: {control: 'ipc:///run/a', request: ['ipc:///run/a']}", "listen", "endpoints that differ", "twice"),
    ("log_level: loud", "log_level", "", "'loud'"),
    ("watchdog: {restart: {max: -1}}", "watchdog.restart.max", "int >= 0", "-1"),
    ("watchdog: {heat: {hot_c: 70}}", "watchdog.heat.hot_c", "more than watchdog.heat.warm_c (70)", "70"),
    ("watchdog: {heat: {critical_c: 77}}", "watchdog.heat.critical_c", "more than watchdog.heat.hot_c (79)", "77"),
    ("watchdog: {memory: {hot_percent: 21}}", "watchdog.memory.hot_percent", "at most", "21"),
    ("watchdog: {memory: {critical_mb: 351}}", "watchdog.memory.critical_mb", "at most", "351"),
    ("watchdog: {pacing: {target_c: 80}}", "watchdog.pacing.target_c", "less than watchdog.heat.hot_c (79)", "80"),
    ("watchdog: {pacing: {knobs: [duty, duty]}}", "watchdog.pacing.knobs", "knobs that differ", "'duty' twice"),
    ("watchdog: {pacing: {knobs: [fan]}}", "watchdog.pacing.knobs[0]", "", "'fan'"),
    ("limits: {queue: 3}\nlimits: {queue: 4}", "(syntax)", "YAML", "'limits' stands twice"),
    ("limits: {queue: 3, queue: 4}", "(syntax)", "YAML", "'queue' stands twice"),
    ("limits: {queue: 3", "(syntax)", "YAML", "line 1"),
    ("a: &a [*a]\n? *a\n: 1", "(syntax)", "YAML", ""),
    ("!!python/object/apply:os.system ['true']", "(syntax)", "YAML", "python/object"),
    ("log_level: 2026-13-99", "(syntax)", "YAML", "month must be"),
    ("just words", "(top)", "a mapping of keys", "'just words'"),
    ("- a list", "(top)", "a mapping of keys", "['a list']"),
]


def error_of(path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return caught.value


@pytest.mark.parametrize(("text", "key", "expected", "found"), WRONG, ids=[w[0][:40] for w in WRONG])
def test_what_is_wrong_is_named(tmp_path, text, key, expected, found):
    file = tmp_path / "edged.yaml"
    file.write_text(text, encoding="utf-8")
    error = error_of(file)
    assert error.key == key
    assert expected in error.expected
    assert found in error.found
    assert len(str(error)) < 500


def test_tcp_is_allowed_when_asked_for(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("listen: {request: ['tcp://*:5555']}\nsecurity: {allow_insecure_tcp: true}")
    assert config.load(file).request_endpoints == ["tcp://*:5555"]
    file.write_text("listen: {request: ['tcp://*:99999']}\nsecurity: {allow_insecure_tcp: true}")
    assert error_of(file).expected == "tcp://ADDRESS:PORT"


def test_not_utf8(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_bytes("log_level: größer".encode("latin-1"))
    assert error_of(file).expected == "a readable UTF-8 file"


def test_missing_or_a_directory(tmp_path):
    assert "No such file" in error_of(tmp_path / "nowhere.yaml").found
    assert "directory" in error_of(tmp_path).found


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "c.yaml")
    with pytest.raises(ConfigError, match="expected a regular file"):
        config.load(str(tmp_path / "c.yaml"))
    with pytest.raises(ConfigError, match="expected a regular file"):
        config.load("/dev/zero")


def test_deep_nesting_is_an_error_not_a_crash(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("[" * 5000)
    error_of(file)


def test_empty_file_means_defaults(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("# nothing\n")
    assert config.load(file).limits == config.load(None).limits


def test_places_follow_the_environment(monkeypatch):
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/edged:/run/other")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/edged")
    settings = config.load(None)
    assert settings.request_endpoints == ["ipc:///run/edged/request.sock"]
    assert settings.control_endpoint == "ipc:///run/edged/control.sock"
    assert settings.state_dir == "/var/lib/edged"
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert config.load(None).runtime_dir == "/run/user/7/edged"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates()
KEYS = st.sampled_from(
    "limits queue profiles name model path listen request control defaults top_p "  # noqa: SIM905 - shorter so
    "security watchdog restart max runtime_dir cpu log_level sha256 batch".split()
)
NAMES = st.text(max_size=8).filter(str.isprintable)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | NAMES | st.integers(), inner),
    max_leaves=20,
)


@given(TREES | st.dictionaries(KEYS, TREES, max_size=5))
def test_nothing_but_a_config_error_is_raised(tree):
    try:
        config.parse(tree, "some.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either way out is right


@given(text=st.text(alphabet="abq:{}[]-&*!|>'\"# \n\t%@`,?0é\x00\ud800", max_size=60))
def test_nor_by_text(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("config") / "edged.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        config.load(file)
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either way out is right


@pytest.mark.parametrize(
    ("tree", "key"),
    [({"a\nb": 1}, "'a\\nb'"), ({"limits": {"\x1b[2J": 1}}, "limits.'\\x1b[2J'"), ({"limits": {3: 1}}, "limits.3")],
)
def test_strange_keys_are_named_in_one_printable_line(tree, key):
    with pytest.raises(ConfigError) as caught:
        config.parse(tree, "some.yaml")
    assert str(caught.value).isprintable()
    assert caught.value.key == key


def test_exit_status_of_the_daemon(tmp_path):
    file = tmp_path / "edged.yaml"
    file.write_text("limits: {queu: 3}")
    command = [sys.executable, "-m", "edged", "--config", file]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == EXIT_CONFIG
    assert f"{file}: limits.queu: expected a key of config.yaml, found an unknown key" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("most", "deaths", "doubted"), [(2, 3, False), (2, 2, True), (0, 1, False), (0, 0, True), (5, 3, True)]
)
def test_a_budget_of_deaths_too_small_to_find_who_is_guilty(most, deaths, doubted):
    found = config.parse({"limits": {"max_restarts": most}, "watchdog": {"restart": {"max": deaths}}}, "test")
    assert [text.split(" is ")[0] for text in config.doubts(found)] == ["watchdog.restart.max"] * doubted
