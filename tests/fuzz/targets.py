"""The targets by name."""

from __future__ import annotations

from edged.wire.codec import RejectedError

from . import grammars, on_config, on_files, on_forms, on_http, on_keys, on_transcripts, on_wire, sealed
from .target import Target

YAML = (
    *(
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!float ''",
        b"!!int ''",
        b"!!bool x",
        b"!!timestamp x",
        b"!!binary x",
        b"!!set ",
        b"!!omap ",
    ),
    *(
        b"!!python/object:os.system ",
        b"? ",
        b": ",
        b"- ",
        b"| ",
        b"> ",
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"{",
        b"}",
        b"[",
        b"]",
    ),
    *(b"'", b'"', b"~", b"yes", b"0x", b"0b", b"0o", b"1:2:3", b".inf", b".nan", b"2001-01-01", b"\t", b"\xef\xbb\xbf"),
    *(b"model:\n  path: ", b"sha256: ", b"listen: ", b"profiles:\n- ", b"\xc2\x85", b"\xe2\x80\xa8", b"# "),
)
GGUF = (b"GGUF", b"general.architecture", b"general.alignment", b"llama", b"tokenizer.ggml.tokens", b"context_length")
GBNF = (
    *(
        b"root ::= ",
        b"::=",
        b"|",
        b"(",
        b")",
        b"[",
        b"]",
        b"[^",
        b"*",
        b"+",
        b"?",
        b"{1,3}",
        b"{,",
        b"{9999}",
        b'"',
        b"\\x41",
    ),
    *(b"\\U0010ffff", b"\\ud800", b".", b"#", b"\r\n", b"\n", b"a ::= root", b"a-z", b"root"),
)
FRAMES = (
    b"\n1 a a +sys/",
    b"\n1 a a +@0",
    b"\n1 b b -@1",
    b"\n1 - - -@2",
    b"\n5000 a a +sys/x",
    b"\n1 c a *x",
    b"\n1 d b +",
)
ZAP = (
    b"edged.control",
    b"@K",
    b"\n",
    b"1.0",
    b"edged",
    b"NULL",
    b"CURVE",
    b"localhost:0:0:1",
    b"localhost:",
    b"127.0.0.1",
    b"\n\n",
    b"\\n",
    b"@K",
)
KEYS = (
    *(b"metadata\n", b"curve\n", b"    name = ", b"    public-key = ", b"    secret-key = ", b"    max_queued = "),
    *(b"    max_priority = high", b"%" * 40, b"0" * 40, b'"', b"'", b"#", b"\r\n", b"\t", b"="),
)
HTTP = (b"GET ", b"HEAD ", b"POST ", b"/metrics", b"?", b" HTTP/1.1\r\n", b"\r\n\r\n", b"\n\n", b"Host: x\r\n", b"\0")

ALL = (
    Target(
        name="request",
        run=on_wire.request,
        allowed=(RejectedError,),
        modules=("edged/wire/codec.py", "edged/wire/shapes.py"),
        mutators=(grammars.REQUEST.mutate,),
        most=250_000,
    ),
    Target(
        name="subscription",
        run=on_wire.subscriptions,
        allowed=(),
        modules=("edged/subscriptions.py", "edged/broker/topics.py", "edged/broker/shares.py"),
        words=FRAMES,
    ),
    Target(
        name="zap",
        run=on_wire.zap,
        allowed=(),
        modules=("edged/wire/auth.py", "edged/wire/bans.py"),
        words=ZAP,
        most=1024,
    ),
    Target(
        name="link",
        run=on_wire.link,
        allowed=(),
        modules=("edged/link.py",),
        mutators=(sealed.link,),
    ),
    Target(
        name="schema",
        run=on_forms.json_schema,
        allowed=on_forms.ERRORS,
        modules=("edged/worker/schema.py", "edged/worker/jsontext.py", "edged/worker/network.py"),
        mutators=(grammars.SCHEMA.mutate,),
        most=65_536,
    ),
    Target(
        name="grammar",
        run=on_forms.grammar,
        allowed=on_forms.ERRORS,
        modules=("edged/worker/gbnf.py", "edged/worker/network.py", "edged/worker/automaton.py"),
        words=GBNF,
    ),
    Target(
        name="config",
        run=on_config.configuration,
        allowed=on_config.ERRORS,
        modules=("edged/config.py", "edged/yamlfile.py", "edged/config_watchdog.py"),
        mutators=(grammars.CONFIG.mutate,),
        words=YAML,
    ),
    Target(
        name="model-use",
        run=on_config.model_use,
        allowed=on_config.SWITCH_ERRORS,
        modules=("edged/models/switch.py",),
        mutators=(grammars.CONFIG.mutate,),
        words=YAML,
        corpus="config",
    ),
    Target(
        name="gguf",
        run=on_files.gguf_header,
        allowed=on_files.GGUF_ERRORS,
        modules=("edged/system/gguf.py", "edged/system/need.py"),
        mutators=(sealed.gguf,),
        words=GGUF,
    ),
    Target(
        name="journal",
        run=on_files.journal,
        allowed=(),
        modules=("edged/journal/format.py", "edged/broker/story.py", "edged/broker/recovery.py"),
        mutators=(sealed.journal,),
    ),
    Target(
        name="snapshot",
        run=on_files.snapshot,
        allowed=(),
        modules=("edged/worker/stateformat.py", "edged/worker/statedir.py"),
        mutators=(sealed.snapshot,),
    ),
    Target(
        name="checkpoint",
        run=on_files.checkpoint,
        allowed=(),
        modules=("edged/worker/checkformat.py", "edged/worker/checkdir.py"),
        mutators=(sealed.checkpoint,),
    ),
    Target(
        name="transcripts",
        run=on_transcripts.transcripts,
        allowed=(),
        modules=("edged/transcripts/store.py", "edged/transcripts/keeper.py", "edged/transcripts/schema.py"),
        mutators=(sealed.database,),
        most=32_768,
    ),
    Target(
        name="records",
        run=on_files.records,
        allowed=(),
        modules=("edged/models/partial.py", "edged/models/checked.py"),
        mutators=(grammars.RECORD.mutate,),
    ),
    Target(
        name="keys",
        run=on_keys.keys,
        allowed=on_keys.ERRORS,
        modules=("edged/keyfile.py",),
        words=KEYS,
        most=8192,
    ),
    Target(
        name="scrape",
        run=on_http.scrape,
        allowed=(),
        modules=("edged/observe/scrape.py",),
        words=HTTP,
        most=8192,
    ),
)
BY_NAME = {target.name: target for target in ALL}
