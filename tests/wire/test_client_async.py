"""The asyncio client against real daemons."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from harness import Daemon
from proxy import Proxy

from edged.client import AsyncClient, Busy, Loading, MissingFeature, NoAnswer, NotFound, Pace, Result

LIMITS = {"drain_s": 0.2, "orphan_grace_ms": 300, "queue": 128, "queue_per_identity": 128}
TEN = "".join(f"t{n} " for n in range(10))


def test_the_verbs(shared: Daemon) -> None:
    async def main() -> None:
        async with AsyncClient(shared.request_endpoint) as edged:
            assert (await edged.status()).ready
            assert "stream_reply" in (await edged.ping()).features
            assert (await edged.tokenize("four")).count == 4
            assert (await edged.embed(["one", "two"])).embeddings == ((0.5,) * 4,) * 2
            assert (await edged.warm("one two")).tokens == 2
            await edged.require("embed", "warm")
            with pytest.raises(MissingFeature):
                await edged.require("telepathy")
            result = await edged.generate("n=10", id="averbs")
            assert result.text == TEN
            assert await edged.result("averbs", wait_s=1) == result
            assert await edged.cancel("averbs") == "finished"
            with pytest.raises(NotFound):
                await edged.result("nobody")
            for mode in ("reply", "pub"):
                async with edged.stream("n=10 delay=0.002", mode=mode) as stream:
                    assert "".join([piece async for piece in stream]) == TEN
                assert stream.result.text == stream.text == TEN
        with pytest.raises(RuntimeError, match="closed"):
            await edged.ping()

    asyncio.run(main())


def test_100_streams_at_once_on_one_loop(tmp_path: Path) -> None:
    box = Daemon(tmp_path, limits=LIMITS)
    try:
        box.start()

        async def one(edged: AsyncClient, number: int) -> tuple[str, str]:
            async with edged.stream(f"n=20 delay=0.001 word=w{number}.", deadline_s=60) as stream:
                return "".join([piece async for piece in stream]), stream.result.text

        async def main() -> list[tuple[str, str]]:
            async with AsyncClient(box.request_endpoint) as edged:
                return await asyncio.gather(*(one(edged, number) for number in range(100)))

        texts = asyncio.run(main())
        assert texts == [(f"w{n}." * 20, f"w{n}." * 20) for n in range(100)]
    finally:
        box.close()


@pytest.mark.parametrize("mode", ["reply", "pub", None])
def test_a_cancelled_task_cancels_its_request(shared: Daemon, mode: str | None) -> None:
    request_id = f"task-{mode}"

    async def main() -> None:
        edged = AsyncClient(shared.request_endpoint)
        begun = asyncio.Event()

        async def read() -> None:
            options = {"max_tokens": 4000, "deadline_s": 600, "id": request_id}
            if mode is None:
                begun.set()
                await edged.generate("n=4000 delay=0.005", **options)
            async for _ in edged.stream("n=4000 delay=0.005", mode=mode, **options):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        while True:
            try:
                if (await edged.result(request_id)).text:
                    break
            except NotFound:
                continue
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kept = await edged.result(request_id)
        assert isinstance(kept, Result)
        assert kept.finish_reason == "cancelled"

    asyncio.run(main())


def test_a_timeout_of_asyncio_does_too(shared: Daemon) -> None:
    async def main() -> None:
        edged = AsyncClient(shared.request_endpoint)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await edged.generate("n=4000 delay=0.005", max_tokens=4000, id="timeout", deadline_s=600)
        assert (await edged.result("timeout")).finish_reason == "cancelled"

    asyncio.run(main())


def test_leaving_early_and_cancel(shared: Daemon) -> None:
    async def main() -> None:
        edged = AsyncClient(shared.request_endpoint)
        async with edged.stream("n=4000 delay=0.005", max_tokens=4000, deadline_s=600) as left:
            await anext(left)
        assert left.result.finish_reason == "cancelled"
        async with edged.stream("n=4000 delay=0.005", max_tokens=4000, deadline_s=600) as stream:
            await anext(stream)
            await stream.cancel()
            assert (await stream.finish()).finish_reason == "cancelled"
        unused = edged.stream("n=1")
        await unused.close()
        with pytest.raises(RuntimeError, match="closed"):
            await anext(unused)

    asyncio.run(main())


def test_lost_events_are_made_up_for(shared: Daemon, tmp_path: Path) -> None:
    proxy = Proxy(shared.context, f"ipc://{tmp_path}/request.sock", shared.request_endpoint)
    lost = {2, 5, 8}
    proxy.down = lambda m: not (m.get("seq") in lost and m["type"] != "snapshot" and not lost.discard(m["seq"]))
    proxy.start()

    async def main() -> None:
        edged = AsyncClient(proxy.endpoint, pace=Pace(first_try_s=0.2, silence_s=0.3))
        async with edged.stream("n=10 delay=0.005", deadline_s=30) as stream:
            assert "".join([piece async for piece in stream]) == TEN
        proxy.up = lambda message: False
        with pytest.raises(NoAnswer):
            await edged.ping(deadline_s=0.3)

    asyncio.run(main())
    proxy.stop()
    assert proxy.lost > 1


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_a_lost_first_answer_is_asked_for_again_with_the_same_id(shared: Daemon, tmp_path: Path, mode: str) -> None:
    proxy = Proxy(shared.context, f"ipc://{tmp_path}/request.sock", shared.request_endpoint)
    tickets: list[dict[str, object]] = []
    proxy.down = lambda m: "topic" not in m or bool(tickets) or tickets.append(m) is not None
    proxy.start()

    async def main() -> None:
        streams = {proxy.endpoint: shared.stream_endpoint}
        edged = AsyncClient(proxy.endpoint, streams=streams, pace=Pace(first_try_s=0.2, silence_s=0.3))
        before = (await edged.status()).raw["counters"].get("accepted", 0)
        async with edged.stream("n=10 delay=0.005", deadline_s=30, mode=mode) as stream:
            assert "".join([piece async for piece in stream]) == TEN
        assert (await edged.status()).raw["counters"]["accepted"] == before + 1

    asyncio.run(main())
    proxy.stop()
    assert proxy.lost == 1


def test_loading_busy_and_a_killed_daemon(tmp_path: Path) -> None:
    box = Daemon(tmp_path, script="load=0.3 sequences=1", limits={**LIMITS, "queue": 1, "queue_per_identity": 1})

    async def main() -> None:
        edged = AsyncClient(box.request_endpoint)
        with pytest.raises(Loading):
            await edged.generate("n=1", retry=False)
        assert (await edged.generate("n=10", deadline_s=60)).text == TEN
        full = [edged.stream("n=4000 delay=0.02", max_tokens=4000, deadline_s=600, retry=False) for _ in range(4)]
        for stream in full:
            await anext(stream.events())
        with pytest.raises(Busy):
            await edged.generate("n=1", retry=False)
        later = asyncio.create_task(edged.generate("n=3", deadline_s=60))
        for stream in full:
            await stream.close()
        assert (await later).text == "t0 t1 t2 "
        async with edged.stream("n=4000 delay=0.005", max_tokens=50, deadline_s=60) as stream:
            await anext(stream)
            box.stop(signal.SIGKILL)
            box.start(ready=False)
            assert (await stream.finish()).usage.completion_tokens == 50
            assert stream.run == 1, "the next daemon goes on with it"

    try:
        box.start(ready=False)
        asyncio.run(main())
    finally:
        box.close()
