"""Several questions at once on one loop; each answer is printed when it is whole.

python ask_async.py "Name a bird." "Name a fish." "Name a tree."
"""

import asyncio
import sys

from edged.client import AsyncClient, EdgedError


async def ask(edged: AsyncClient, question: str) -> bool:
    try:
        async with edged.stream(question, max_tokens=200, deadline_s=120) as stream:
            answer = await stream.finish()
    except EdgedError as error:  # refused, failed, or nothing came in time: the others go on
        print(f"{question} -> {error}", file=sys.stderr)
        return False
    print(f"{question} -> {answer.text}")
    return True


async def main(questions: list[str]) -> int:
    async with AsyncClient() as edged:
        answered = await asyncio.gather(*(ask(edged, question) for question in questions))
    return 0 if all(answered) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or ["Name a bird.", "Name a fish."])))
