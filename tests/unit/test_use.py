"""`edgectl model use` edits two values in a configuration and touches nothing else."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from edged import config
from edged.cli.main import cli
from edged.errors import ConfigError
from edged.models import checked
from edged.models.switch import CannotEditError, apply, edit
from unit.model_server import gguf_file, sha256

REPOSITORY = Path(__file__).parents[2]
SUM = "0123456789" * 6 + "0123"  # digits only: must not become a number
PATH = "/var/lib/edged/models/m.gguf"


def changed(before, after):
    """The lines that differ, with their sign."""
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[:1] in "+-"]


def test_the_configuration_that_comes_along():
    text = (REPOSITORY / "config.yaml").read_text(encoding="utf-8")
    after = edit(text, PATH, SUM)
    assert changed(text, after) == [
        '-   path: ""',
        f"+   path: {PATH}",
        "-   sha256: null",
        f'+   sha256: "{SUM}"',
    ]
    back = edit(after, "", None)
    assert changed(text, back) == ['-   path: ""', "+   path: ''"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'model:\n  path: P\n  sha256: "S"\n'),
        ("# nothing yet\n", '# nothing yet\nmodel:\n  path: P\n  sha256: "S"\n'),
        ("log_level: info", 'log_level: info\nmodel:\n  path: P\n  sha256: "S"\n'),
        ("model:\n", 'model:\n  path: P\n  sha256: "S"\n'),
        ("model: # mine\ncpu: {}\n", 'model: # mine\n  path: P\n  sha256: "S"\ncpu: {}\n'),
        ("model: null # none\n", 'model:\n  path: P\n  sha256: "S" # none\n'),
        ("model: {}\n", 'model: {path: P, sha256: "S"}\n'),
        ("model: {path: old}\n", 'model: {sha256: "S", path: P}\n'),
        ("model: { sha256: null, path: x } # c\n", 'model: { sha256: "S", path: P } # c\n'),
        ("model:\n    # why\n    path: old   # c\n", 'model:\n    # why\n    sha256: "S"\n    path: P   # c\n'),
        ("model:\n  path:\n  sha256: # c\n", 'model:\n  path: P\n  sha256: "S" # c\n'),
        ("model:\n  sha256: ~\n\n  path: 'a b'\nx: 1\n", 'model:\n  sha256: "S"\n\n  path: P\nx: 1\n'),
        ('model:\n  path: "a\\\n    b"\n', 'model:\n  sha256: "S"\n  path: P\n'),
        ("model:\r\n  path: a\r\nx: 1\r\n", 'model:\r\n  sha256: "S"\r\n  path: P\r\nx: 1\r\n'),
        ("---\nmodel:\n  path: a # é 時\n", '---\nmodel:\n  sha256: "S"\n  path: P # é 時\n'),
        ("  model:\n    path: a\n", '  model:\n    sha256: "S"\n    path: P\n'),
        ("  x: 1\n", '  x: 1\n  model:\n    path: P\n    sha256: "S"\n'),
        ('"model": {"path": "a"}\n', '"model": {sha256: "S", "path": P}\n'),
    ],
)
def test_layouts(before, after):
    assert edit(before, PATH, SUM) == after.replace("P", PATH).replace('"S"', f'"{SUM}"')


@pytest.mark.parametrize(
    "text",
    [
        '{"model": 5}',
        "{log_level: info}",
        "model: text\n",
        "model: [a]\n",
        "a: &m {path: x}\nmodel: *m\n",
        "a: &p x\nmodel:\n  path: &q y\nb: *q\n",
        "x: 1\n...\n",
        "- a\n",
        "model: [\n",
        "a: 1\n--- \nb: 2\n",
        "model: |\n  path: x\n",
        "model:\n  path: |\n    x\n",
    ],
)
def test_what_has_to_be_done_by_hand(text):
    with pytest.raises(CannotEditError):
        edit(text, PATH, SUM)


SCALARS = st.sampled_from(["", " null", " ~", " old", " 'a: b'", ' "x # y"', " /m/a.gguf", " |\n      text"])
COMMENTS = st.sampled_from(["", "  # why", " # path: no", "\n    # sha256: x", "\n"])
KEYS = st.sampled_from(["path", "sha256"])
OTHERS = st.sampled_from(
    ["log_level: info", "limits: {queue: 3}", "cpu:\n  reserve_cores: 1  # one", "# note", "profiles:\n- name: a"]
)


@st.composite
def documents(draw):
    """Configurations as people write them: any order, comments, missing keys, odd scalars."""
    lines = [f"{other}\n" for other in draw(st.lists(OTHERS, unique=True, max_size=3))]
    if draw(st.booleans()):
        keys = draw(st.lists(KEYS, unique=True, max_size=2))
        section = "model:" + draw(st.sampled_from(["", " # the weights"])) + "\n"
        section += "".join(f"    {key}:{draw(SCALARS)}{draw(COMMENTS)}\n" for key in keys)
        lines.insert(draw(st.integers(0, len(lines))), section)
    return draw(st.sampled_from(["", "---\n", "# head\n"])) + "".join(lines)


PATHS = st.from_regex(r"/[ -~é時]{0,30}", fullmatch=True)


@given(documents(), PATHS, st.one_of(st.none(), st.just(SUM)))
def test_only_the_two_values_change(text, path, sum_):
    try:
        before = yaml.safe_load(text) or {}
    except yaml.YAMLError:
        assume(False)
    try:
        after = edit(text, path, sum_)
    except CannotEditError:
        return
    data = yaml.safe_load(after)
    assert data.pop("model") == {"path": path, "sha256": sum_}
    before.pop("model", None)
    assert data == before
    comments = [line[line.index("#") :] for line in text.splitlines() if "#" in line and '"x # y"' not in line]
    assert all(comment in after for comment in comments)
    for line in changed(text, after):  # what does not name one of the two keys, or the section, is untouched
        value_of_more_lines = line[1:].strip() in ("text", "")
        assert value_of_more_lines or any(key in line for key in ("path", "sha256", "model"))


@given(documents(), PATHS)
def test_what_was_edited_can_be_edited_again(text, path):
    try:
        once = edit(text, path, SUM)
    except (CannotEditError, yaml.YAMLError):
        return
    assert edit(once, path, SUM) == once


# ---- the file and the command ----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    directory = tmp_path / "data/edged/models"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def model(home):
    path = home / "m.gguf"
    path.write_bytes(gguf_file(4096))
    return path


def edgectl(file, *args):
    options = ["--config", str(file)] if file else []
    return CliRunner().invoke(cli, [*options, "model", *args], catch_exceptions=False)


def test_use(tmp_path, model):
    file = tmp_path / "config.yaml"
    file.write_text("# mine\nmodel:\n  path: /old/o.gguf # was\nlog_level: debug\n")
    file.chmod(0o640)
    done = edgectl(file, "use", "m")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{file}: the model is {model}" in done.stdout
    assert "to have a running daemon load it: edgectl config apply" in done.stdout
    assert "edgectl model verify m.gguf" in done.stdout  # nothing has hashed it yet
    assert "back again: edgectl model use /old/o.gguf" in done.stdout
    assert file.read_text() == f"# mine\nmodel:\n  sha256: null\n  path: {model} # was\nlog_level: debug\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml", "data"]
    assert edgectl(file, "verify", "m").exit_code == 0
    again = edgectl(file, "use", "m", "--json")
    known = sha256(model.read_bytes())
    assert json.loads(again.stdout)["sha256"] == known
    assert config.load(file).model.sha256 == known


def test_use_through_a_link(tmp_path, model):
    (tmp_path / "real.yaml").write_text("{}\n")
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    assert edgectl(tmp_path / "link.yaml", "use", "m").exit_code == 1  # braces: by hand
    (tmp_path / "real.yaml").write_text("log_level: info\n")
    assert edgectl(tmp_path / "link.yaml", "use", "m").exit_code == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert config.load(tmp_path / "real.yaml").model_path == str(model)


def test_without_a_configuration_it_says_what_to_write(tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDGED_CONFIG", raising=False)
    done = edgectl(None, "use", "m")
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "edgectl: there is no configuration file. Put this into the configuration:"
    assert yaml.safe_load("\n".join(lines[1:])) == {"model": {"path": str(model), "sha256": None}}


def test_a_profile_with_a_model_of_its_own_wins(tmp_path, model):
    file = tmp_path / "c.yaml"
    file.write_text("profiles:\n- model: /other.gguf\n")
    done = edgectl(file, "use", "m")
    assert done.exit_code == 1
    assert "profiles[0].model names /other.gguf, which wins over model.path: set it to null first" in done.stderr
    assert file.read_text() == "profiles:\n- model: /other.gguf\n"


def test_a_result_that_is_not_valid_is_not_written(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("limits: {queue: none}\n")
    with pytest.raises(ConfigError, match=f"{file}: limits.queue: expected int"):
        apply(str(file), "/m.gguf", None)
    assert os.listdir(tmp_path) == ["c.yaml"]
    assert file.read_text() == "limits: {queue: none}\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nix", "no such model; edgectl model list shows what there is"),
        ("qwen2.5-0.5b", "not fetched yet: edgectl model pull qwen2.5-0.5b"),
        ("bad", "not a GGUF file"),
        ("half", "not fetched yet: edgectl model pull half"),
    ],
)
def test_a_model_that_cannot_be_used(tmp_path, home, name, words):
    (home / "bad.gguf").write_bytes(b"bad")
    (home / "half.gguf.part").write_bytes(b"GGUF")
    file = tmp_path / "c.yaml"
    file.write_text("{}\n")
    done = edgectl(file, "use", name)
    assert done.exit_code == 1
    assert words in done.stderr
    assert file.read_text() == "{}\n"


def test_a_read_only_place(tmp_path, model, monkeypatch):
    file = tmp_path / "c.yaml"
    file.write_text("log_level: info\n")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    done = edgectl(file, "use", "m")
    assert done.exit_code == 1
    assert "Permission denied. Put this into the configuration:" in done.stderr
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.yaml", "data"]


def test_the_sum_of_a_file_that_has_changed_is_not_used(tmp_path, model):
    file = tmp_path / "c.yaml"
    file.write_text("log_level: info\n")
    checked.remember(model, SUM, "--sha256")
    model.write_bytes(gguf_file(8192))
    assert edgectl(file, "use", "m").exit_code == 0
    assert config.load(file).model.sha256 is None


def test_a_device_or_a_fifo_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for file in ("/dev/null", str(tmp_path / "fifo")):
        with pytest.raises(CannotEditError, match="not a regular file"):
            apply(file, "/models/x.gguf", None)
    assert not Path("/dev/null").is_file()
