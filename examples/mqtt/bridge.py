"""MQTT in, tokens out: for devices that speak MQTT already (an ESP32, Node-RED, Home Assistant).

    pip install paho-mqtt
    python bridge.py --broker localhost:1883
    mosquitto_sub -v -t 'edged/answer/#' & mosquitto_pub -q 1 -t edged/ask/kitchen -m 'Why is the sky blue?'

In, QoS 1:  edged/ask/DEVICE               plain text, or a JSON object with fields of `generate` (docs/protocol.md 3)
Out:        edged/answer/DEVICE/ID/token   QoS 0: the next piece, plain. May get lost; the result has all of it
            edged/answer/DEVICE/ID/anew    QoS 0, empty: forget the pieces so far, the answer begins anew (a restart)
            edged/answer/DEVICE/ID/result  QoS 1: JSON, the result's fields (`text` …) or `error`
            edged/bridge/state             QoS 1, retained: "online" or "offline" (the last will): a state, not an event

* ID is the question's own `id`, else made from its text. A message that is delivered twice, by the device or by the
  broker, has the same ID and runs once; the second gets the kept answer (limits.result_ttl_s, 5 minutes). A device that
  asks the same words again and wants a new answer gives an `id` of its own.
* A question is acknowledged when its answer has been sent, and the broker keeps the bridge's session: what is not
  answered when the bridge or the broker dies comes again. The broker hands out 20 at a time, the rest waits there.
* Answers are not retained (they belong to one question). Retained questions are ignored: they would be asked anew at
  each start.
"""

import argparse
import hashlib
import json
import queue
import re
import signal
import threading
from typing import Any

import paho.mqtt.client as mqtt

from edged.client import Anew, Client, EdgedError, NoAnswer, Piece

ASK, ANSWER, STATE = "edged/ask/", "edged/answer/", "edged/bridge/state"
AT_ONCE, WAITING = 8, 100
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def question(device: str, payload: bytes) -> tuple[str, dict[str, Any]]:
    """The ID for the topic, and the request's fields; its `id` on the wire is of this device and this question."""
    text = payload.decode("utf-8", "replace")
    fields = json.loads(text) if text.lstrip().startswith("{") else {"messages": [{"role": "user", "content": text}]}
    fields.pop("op", None)
    name = str(fields.pop("id", "")) or hashlib.sha256(payload).hexdigest()[:16]
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", name):
        raise ValueError("`id` is 1 to 64 of A-Z a-z 0-9 . _ : -")
    return name, {**fields, "id": hashlib.sha256(f"{device}\0{name}".encode()).hexdigest()[:32]}


def error_fields(error: Exception) -> dict[str, Any]:
    other = "no_answer" if isinstance(error, NoAnswer) else "bad_request"
    code = getattr(error, "code", other)
    retryable = getattr(error, "retryable", isinstance(error, EdgedError))
    return {"error": {"code": code, "message": getattr(error, "message", str(error)), "retryable": retryable}}


class Bridge:
    def __init__(self, edged: Client, deadline_s: float) -> None:
        self.edged, self.deadline_s = edged, deadline_s
        self.todo: queue.Queue[tuple[str, str, dict[str, Any]]] = queue.Queue(WAITING)
        self.lock, self.connection = threading.Lock(), 0
        self.running: dict[str, list[tuple[int, mqtt.MQTTMessage]]] = {}  # by id: the deliveries to acknowledge
        self.mqtt = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id="edged-bridge", clean_session=False, manual_ack=True
        )
        self.mqtt.will_set(STATE, "offline", qos=1, retain=True)
        self.mqtt.on_connect, self.mqtt.on_message = self.connected, self.asked
        self.mqtt.reconnect_delay_set(1, 30)
        for _ in range(AT_ONCE):
            threading.Thread(target=self.work, daemon=True).start()

    def connected(self, client: mqtt.Client, _userdata: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.connection += 1
        if not reason.is_failure:  # each time: a broker without persistence has forgotten the session
            client.subscribe(ASK + "+", qos=1)
            client.publish(STATE, "online", qos=1, retain=True)

    def asked(self, client: mqtt.Client, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        """In the network thread: never waits."""
        device, name = message.topic.removeprefix(ASK), "invalid"
        try:
            if not message.retain:
                name, fields = question(device, message.payload)
                with self.lock:
                    if fields["id"] not in self.running:
                        self.todo.put_nowait((device, name, fields))
                    self.running.setdefault(fields["id"], []).append((self.connection, message))
                return
        except queue.Full:
            busy = {"code": "busy", "message": "too many questions wait in the bridge", "retryable": True}
            self.result(device, name, {"id": name, "error": busy})
        except (ValueError, TypeError, RecursionError) as error:
            self.result(device, name, error_fields(error))
        client.ack(message.mid, message.qos)

    def work(self) -> None:
        while True:
            device, name, fields = self.todo.get()
            try:
                found = self.stream(f"{ANSWER}{device}/{name}", dict(fields))
            except Exception as error:  # noqa: BLE001 - whatever it was, the device is told
                found = error_fields(error)
            self.result(device, name, {**found, "id": name})
            with self.lock:
                deliveries = self.running.pop(fields["id"])
            for connection, message in deliveries:
                if connection == self.connection:  # else it is delivered once more, and gets the kept answer
                    self.mqtt.ack(message.mid, message.qos)

    def stream(self, topic: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Refusals, lost messages and restarts of the daemon are the library's affair, up to the deadline."""
        request_id, messages = fields.pop("id"), fields.pop("messages", None)
        deadline = fields.pop("deadline_ms", self.deadline_s * 1000) / 1000
        options = {"prompt": fields.pop("prompt")} if "prompt" in fields else {}
        with self.edged.stream(messages, id=request_id, deadline_s=deadline, extra=fields, **options) as stream:
            for event in stream.events():
                if isinstance(event, Piece):
                    self.mqtt.publish(topic + "/token", event.text, qos=0)
                elif isinstance(event, Anew):
                    self.mqtt.publish(topic + "/anew", qos=0)
            return stream.result.raw

    def result(self, device: str, name: str, fields: dict[str, Any]) -> None:
        self.mqtt.publish(f"{ANSWER}{device}/{name}/result", json.dumps(fields), qos=1)

    def run(self, host: str, port: int) -> None:
        """Until SIGTERM or Ctrl-C. What is unanswered then is not acknowledged: it comes again at the next start."""
        self.mqtt.connect_async(host, port, keepalive=30)
        self.mqtt.loop_start()
        signal.sigwait(SIGNALS)
        if self.mqtt.is_connected():
            self.mqtt.publish(STATE, "offline", qos=1, retain=True).wait_for_publish(2)
        self.mqtt.disconnect()
        self.mqtt.loop_stop()


def main() -> None:
    options = argparse.ArgumentParser(description="MQTT in, tokens out")
    options.add_argument("--broker", default="localhost:1883", metavar="HOST:PORT")
    options.add_argument("--edged", metavar="ENDPOINT", help="default: $EDGED_ENDPOINT, else this machine's daemon")
    options.add_argument("--deadline", type=float, default=300, metavar="S", help="per question (default 300)")
    given = options.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # before any thread starts: run() waits for them
    host, _, port = given.broker.rpartition(":")
    Bridge(Client(given.edged), given.deadline).run(host, int(port))


if __name__ == "__main__":
    main()
