"""A headless Chromium, told by its debugging pipe what to show, and photographed."""

import base64
import json
import os
import subprocess
import tempfile
import time

# How long one answer may take, in seconds.
PATIENCE_S = 60


class Browser:
    """Runs while it is entered. `before` are words that the command begins with."""

    def __init__(self, before):
        self.before = before
        self.count = 0
        self.events = []
        self.rest = b""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="nrw-chromium-", ignore_cleanup_errors=True)
        to_it, self.writer = os.pipe()
        self.reader, from_it = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4. It has no sandbox as root; it
        # sees only our own page.
        chromium = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    "--no-first-run", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe"]
        shell = ["bash", "-c", f'exec "$@" 3<&{to_it} 4>&{from_it}', "chromium"]
        self.process = subprocess.Popen(
            [*shell, *self.before, *chromium], pass_fds=(to_it, from_it),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        os.set_blocking(self.reader, False)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.writer)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reader)
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        """Calls a method of the protocol and returns its result."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = self._read(deadline)
            if told.get("id") == self.count:
                if "error" in told:
                    raise SystemExit(f"chromium refuses {method}: {told['error']}")
                return told["result"]
            self.events.append(told)

    def tell(self, method, **parameters):
        """The same, of the page."""
        return self.call(method, session=self.session, **parameters)

    def _read(self, deadline):
        while b"\0" not in self.rest:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("chromium does not answer")
            try:
                self.rest += os.read(self.reader, 1 << 20)
            except BlockingIOError:
                time.sleep(0.02)
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def show(self, url, width, height, scheme):
        """Opens `url` in a window of so many pixels, with the `light` or `dark` scheme."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.tell("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.tell("Page.navigate", url=url)

    def value(self, expression):
        """What a JavaScript expression is on the page."""
        return self.tell("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def await_that(self, expression, what):
        """Waits until a JavaScript expression is true on the page."""
        deadline = time.monotonic() + PATIENCE_S
        while self.value(expression) is not True:
            if time.monotonic() > deadline:
                raise SystemExit(f"the page has not shown {what}")
            time.sleep(0.2)

    def photograph(self, path, width, height):
        """Writes the top `height` pixels of the page, or all where it has fewer, to `path`."""
        whole = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        if whole["width"] > width:
            raise SystemExit(f"{path}: the page is {whole['width']} pixels wide in a window of {width}")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, whole["height"]), "scale": 1}
        picture = self.tell("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def complaints(self):
        """What the page did wrong: exceptions and errors in its log."""
        found = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"]["text"])
            entry = event.get("params", {}).get("entry", {})
            # Without a store of history its path is missing, and the page leaves that section out.
            if entry.get("level") == "error" and "/api/history/series" not in entry.get("url", ""):
                found.append(entry["text"])
        return found
