"""A headless Chromium, driven by its own protocol over a pair of pipes: no driver, no network.

The protocol is that of Chrome's developer tools: JSON, each message terminated by NUL.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

HANG_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """Return the browser's program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a separate browser; a context manager. `trouble` has the console's messages."""

    def __init__(self, program: str, *, wide: int = 1280, tall: int = 900, dark: bool = False):
        self.trouble: list[str] = []
        self._number = 0
        self._home = tempfile.mkdtemp(prefix="fprof-browser-")
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()

        def as_it_expects() -> None:
            copies = os.dup(commands), os.dup(answers)
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        self._process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--remote-debugging-pipe", "--no-first-run", "--disable-dev-shm-usage",
                f"--user-data-dir={self._home}", "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=as_it_expects,
            pass_fds=(3, 4),
            start_new_session=True,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._heard = b""
        self._session: str | None = None
        try:
            targets = self.ask("Target.getTargets")["targetInfos"]
            page = next(target["targetId"] for target in targets if target["type"] == "page")
            attached = self.ask("Target.attachToTarget", targetId=page, flatten=True)
            self._session = attached["sessionId"]
            for part in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{part}.enable")
            self.ask("Emulation.setDeviceMetricsOverride", width=wide, height=tall,
                     deviceScaleFactor=1, mobile=False)  # fmt: skip
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.ask("Emulation.setEmulatedMedia", features=[scheme])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and all its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        for _ in range(50):  # its processes write while they die
            shutil.rmtree(self._home, ignore_errors=True)
            if not os.path.exists(self._home):
                break
            time.sleep(0.1)

    def open(self, path: Path) -> None:
        """Open a page, and wait until it is drawn."""
        self.ask("Page.navigate", url=path.as_uri())
        until_s = time.monotonic() + HANG_S
        while self.value("document.documentElement?.dataset.ready") != "yes":
            if time.monotonic() > until_s or self.trouble:
                raise TimeoutError(f"the page does not get ready: {self.trouble}")
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that a selector finds."""
        box = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x + b.width / 2, b.y + b.height / 2]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                     clickCount=1)  # fmt: skip

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key, by its name in JavaScript."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        event: dict[str, Any] = {"key": key, "code": key, "modifiers": 8 * shift}
        event["windowsVirtualKeyCode"] = codes[key]
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def picture(self, *, whole: bool = True) -> bytes:
        """Return a screenshot of the page, or of its visible part, as PNG."""
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer; RuntimeError if that is an error."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + HANG_S
        while True:
            heard = self._next(until_s)
            if heard.get("id") == self._number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']}")
                result: dict[str, Any] = heard["result"]
                return result
            self._note(heard)

    def _next(self, until_s: float) -> dict[str, Any]:
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until_s - time.monotonic()))
            received = os.read(self._from, 1 << 20) if ready else b""
            if not received:
                raise TimeoutError("the browser does not answer")
            self._heard += received
        message, _, self._heard = self._heard.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.trouble.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.trouble.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.trouble.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.trouble.append(f"asked for {url}")
