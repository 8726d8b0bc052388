"""Calls of `GPT2.from_pretrained` and their network requests.

Run as a program, it opens the models of a JSON list of names from stdin and writes the outcomes
to stdout.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from attnlab import GPT2

network: list[list[object]] = []
recording = True


def record(event: str, arguments: Any) -> None:
    """An audit hook that records every connection and name lookup of this process."""
    if not recording:
        return
    if event == "socket.connect":
        network.append(list(arguments[1]))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        network.append(list(arguments[:2]))


def outcome(name: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one call; the hook must have been added."""
    network.clear()
    result: dict[str, Any] = {}
    start = time.monotonic()
    try:
        model = GPT2.from_pretrained(name, **options)
        result = {"directory": str(model.parameters.directory), "width": model.config.n_embd}
        _ = model.trace("the hen").logits
    except Exception as error:
        result |= {"error": type(error).__name__, "message": str(error)}
    return {**result, "seconds": time.monotonic() - start, "network": list(network)}


def main() -> None:
    sys.addaudithook(record)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in case it is ignored
    if limit := os.environ.get("LARGEST_FILE"):
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    outcomes = [outcome(name, {}) for name in json.load(sys.stdin)]
    has_utils = "huggingface_hub.utils" in sys.modules
    print(json.dumps([{**outcome_of_call, "has_utils": has_utils} for outcome_of_call in outcomes]))


if __name__ == "__main__":
    main()
