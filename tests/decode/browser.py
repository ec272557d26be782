# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to over two pipes: what report_page_test.py needs of its DevTools protocol."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Where Chromium is, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """One page. Everything that it says on its console, and each request, is kept."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.ours_out = os.pipe()
        self.ours_in, from_browser = os.pipe()

        def pipes_as_3_and_4():
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--mute-audio",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
             "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
             "about:blank"],
            preexec_fn=pipes_as_3_and_4, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events = b"", 0, []
        self.session = None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def receive(self, timeout=60):
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            if not select.select([self.ours_in], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            got = os.read(self.ours_in, 1 << 20)
            if not got:
                raise EOFError("the browser has ended")
            self.buffer += got
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.ours_out, text):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, ready="true"):
        """Loads a file and waits until the expression `ready` is true."""
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        end = time.monotonic() + 30
        while self.run(f"document.readyState === 'complete' && ({ready})") is not True:
            if time.monotonic() > end:
                raise TimeoutError(f"{path}: not ready; " + "; ".join(self.complaints()))
            time.sleep(0.02)

    def run(self, script):
        """The value of an expression, or of the promise that it is."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def size(self, width, height=900, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, key, shift=False):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path, whole=False):
        made = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as out:
            out.write(base64.b64decode(made["data"]))

    def complaints(self):
        """Errors and warnings of the console, and exceptions."""
        said = []
        for event in self.events:
            method, what = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(what["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                said.append(json.dumps(what["args"]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                said.append(what["entry"]["text"])
        return said

    def requests(self):
        """Addresses that were asked for."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (EOFError, OSError, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)
        self.profile.cleanup()
