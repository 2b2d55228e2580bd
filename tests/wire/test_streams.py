"""Streams over real sockets: complete, gapless, and gone with their listeners."""

from __future__ import annotations

import json
import random
from pathlib import Path

import zmq
from harness import Daemon, running, until

from wire.conftest import Stranger


def test_a_reply_stream_is_gapless_and_equals_the_result(daemon: Daemon) -> None:
    with daemon.client() as client:
        ticket, *events = client.stream(prompt="n=40 chunks=3", id="s")
        result = client.call(op="result", id="s")
    assert ticket["state"] == "queued"
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert "".join(e["text"] for e in events if e["type"] == "token") == result["text"]
    assert events[-1]["type"] == "end"
    assert {k: events[-1][k] for k in ("text", "usage", "seed")} == {k: result[k] for k in ("text", "usage", "seed")}


def test_ask_and_subscribe_at_once_200_times_misses_nothing(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.subscriber() as sub:
        for number in range(200):
            ticket = client.call(op="generate", prompt="n=6", stream=True, id=f"u{number}")
            sub.subscribe(ticket["topic"])
            text, end, gaps = sub.whole()
            assert (text, gaps) == (end["text"], 0)
            assert text == "t0 t1 t2 t3 t4 t5 "


def test_a_subscriber_after_3000_events_is_whole_at_once(daemon: Daemon) -> None:
    with daemon.client() as client:
        body = {"op": "generate", "prompt": "n=4000 die=HUP@99999", "stream": True, "detach": True, "max_tokens": 3000}
        ticket = client.call(**body, id="long")
        client.call(op="result", id="long", wait_ms=60_000)
        with daemon.subscriber(ticket["topic"]) as sub:
            first, last = sub.receive(), sub.receive()
    assert first["type"] == "snapshot"
    assert first["state"] == "finished"
    assert last["type"] == "end"
    assert last["seq"] == first["seq"] + 1 > 3000
    assert first["text"] == last["text"] == "".join(f"t{i} " for i in range(3000))


def test_a_subscriber_in_the_middle_goes_on_from_the_snapshot(daemon: Daemon) -> None:
    with daemon.client() as client:
        ticket = client.call(op="generate", prompt="n=200 delay=0.003", stream=True, id="m")
        with daemon.subscriber(ticket["topic"]) as early:
            while early.receive()["type"] != "token":
                pass
            with daemon.subscriber(ticket["topic"]) as late:
                text, end, gaps = late.whole()
    assert (text, gaps) == (end["text"], 0)
    assert end["usage"]["completion_tokens"] == 200


def test_the_newest_connection_takes_a_reply_stream_over(daemon: Daemon) -> None:
    body = {"prompt": "n=200 delay=0.005", "id": "t"}
    with daemon.client() as first, daemon.client() as second:
        events = first.stream(**body)
        next(events)
        assert next(events)["type"] == "prefill"
        ticket, snapshot, *rest = second.stream(**body)
        assert ticket["ok"]
        assert snapshot["type"] == "snapshot"
        text = snapshot["text"] + "".join(e["text"] for e in rest if e["type"] == "token")
        assert text == rest[-1]["text"]
        assert [e["seq"] for e in rest] == list(range(snapshot["seq"] + 1, rest[-1]["seq"] + 1))
        ticket, snapshot, end = first.stream(**body)
        assert (ticket["state"], snapshot["text"], end["type"]) == ("finished", text, "end")


def test_a_stream_without_listeners_is_cancelled_after_the_grace(tmp_path: Path) -> None:
    with running(tmp_path, limits={"orphan_grace_ms": 200, "drain_s": 0.2}) as box, box.client() as client:
        body = {"op": "generate", "prompt": "n=4000 delay=0.01", "max_tokens": 4000, "stream": True}
        client.call(**body, id="alone")
        client.call(**body, id="detached", detach=True)
        assert client.call(op="result", id="alone", wait_ms=1)["state"] in ("queued", "running")
        until(lambda: client.call(op="result", id="alone").get("finish_reason") == "cancelled", "the orphan's end")
        assert client.call(op="result", id="detached")["state"] == "running"


def test_a_killed_listener_costs_its_stream_the_slot(tmp_path: Path) -> None:
    with running(tmp_path, limits={"orphan_grace_ms": 200, "drain_s": 0.2}) as box, box.client() as client:
        for mode in ("reply", "pub"):
            stranger = Stranger(box)
            body = {"op": "generate", "prompt": "n=4000 delay=0.01", "max_tokens": 4000, "stream": mode, "id": mode}
            ticket = stranger.do(stream=body)
            if mode == "pub":
                stranger.subscribe(ticket["topic"])
                assert stranger.do(events=0.3)
            assert client.call(op="result", id=mode)["state"] in ("queued", "running")
            stranger.close()
            until(lambda mode=mode: client.call(op="result", id=mode).get("finish_reason") == "cancelled", mode)
        box.wait_status(lambda s: s["slots"]["busy"] == 0, "the slots")


def test_200_starts_and_cancels_give_the_slots_back(daemon: Daemon) -> None:
    rng = random.Random(5)
    with daemon.client() as client:
        for number in range(200):
            events = client.stream(prompt="n=4000 delay=0.001 chunks=3", id=f"c{number}", max_tokens=4000)
            for _ in range(rng.randrange(1, 7)):
                next(events)
            client.ask(op="cancel", id=f"c{number}")
            assert list(events)[-1]["finish_reason"] == "cancelled"
    status = daemon.wait_status(lambda s: s["slots"]["busy"] == 0, "the slots")
    assert status["queue"]["accepted"] == 0


def test_a_reader_that_does_not_read_delays_nobody_and_is_told(daemon: Daemon) -> None:
    lazy = daemon.socket(zmq.DEALER, rcvhwm=1)
    body = {"op": "generate", "prompt": f"n=4000 word={'x' * 2000}", "max_tokens": 4000, "id": "lazy", "detach": True}
    lazy.send_multipart([b"", json.dumps({**body, "stream": "reply"}).encode()])
    with daemon.client() as client:
        assert client.call(op="generate", prompt="n=5")["text"] == "t0 t1 t2 t3 t4 "
        result = client.call(op="result", id="lazy", wait_ms=60_000)
    assert result["lagged"] is True
    assert len(result["text"]) == 4000 * 2000


def test_health_is_for_anybody_and_names_nobody(daemon: Daemon) -> None:
    daemon.settings["health_interval_s"] = 0.2
    daemon.write_config()
    daemon.process.send_signal(1)
    with daemon.client() as client, daemon.subscriber("sys/") as sub:
        list(client.stream(prompt="n=3", id="secret-id"))
        seen = [sub.receive() for _ in range(3)]
    assert {e["type"] for e in seen} == {"health"}
    assert "secret-id" not in json.dumps(seen)
    assert "uid:" not in json.dumps(seen)
