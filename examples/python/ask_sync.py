"""One question, the answer as it is written.

    python ask_sync.py "Why is the sky blue?"

Finds the daemon of this machine, or the one in $EDGED_ENDPOINT. What is lost, refused for the moment, or torn by a
restart is asked for again by the library, as long as the deadline allows.
"""

import sys

from edged.client import Client, NoAnswer, ReplyError


def main(question: str) -> int:
    try:
        with Client() as edged, edged.stream(question, max_tokens=200, deadline_s=60) as stream:
            run = stream.run
            for piece in stream:
                if stream.run != run:  # the daemon was restarted: what was printed does not count
                    run = stream.run
                    print("\n-- again from the start --")
                print(piece, end="", flush=True)
            print()
            result = stream.result
    except ReplyError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    except NoAnswer as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{result.usage.completion_tokens} tokens, {result.finish_reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]) or "Why is the sky blue?"))
