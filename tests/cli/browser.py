"""A headless Chromium through its debugging pipe: a page at a chosen width and in the dark, what its console said, what a
script in it finds, its picture. Not a test of its own; test_report.py uses it."""
import base64
import fcntl
import json
import os
import select
import subprocess
import time

SECONDS = 60  # for one answer
SAYS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    def __init__(self, program, folder):
        """Raises OSError or TimeoutError where the program is no browser or does not start."""
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def place():
            # The browser reads 3 and writes 4; copies first, since one of the pipes may be 3 or 4.
            copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        self.reading, self.writing, self.rest, self.events, self.asked, self.session = ours_in, ours_out, b"", [], 0, None
        self.log = os.path.join(folder, "browser.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                 "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + os.path.join(folder, "profile"),
                 "about:blank"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=place, close_fds=False)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.ask(domain + ".enable")
        except (OSError, RuntimeError):
            self.close()
            raise

    def message(self, until):
        while b"\0" not in self.rest:
            ready = select.select([self.reading], [], [], max(0, until - time.monotonic()))[0]
            got = os.read(self.reading, 1 << 20) if ready else b""
            if not got:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise TimeoutError("the browser does not answer: " + log.read()[-300:])
            self.rest += got
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **params):
        self.asked += 1
        question = {"id": self.asked, "method": method, "params": params}
        if self.session:
            question["sessionId"] = self.session
        os.write(self.writing, json.dumps(question).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            one = self.message(until)
            if one.get("id") == self.asked:
                if "error" in one:
                    raise RuntimeError("%s: %s" % (method, one["error"]))
                return one["result"]
            self.events.append(one)

    def open(self, page, width, height, dark=False):
        """What the console said until the page was loaded."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.ask("Page.navigate", url="file://" + page)
        until = time.monotonic() + SECONDS
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message(until))
        return [e["params"] for e in self.events if e.get("method") in SAYS]

    def evaluate(self, text):
        return self.ask("Runtime.evaluate", expression=text, returnByValue=True)["result"].get("value")

    def picture(self):
        """The whole page as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def close(self):
        self.session = None
        try:
            os.write(self.writing, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            self.child.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            self.child.kill()
            self.child.wait()
        os.close(self.reading)
        os.close(self.writing)
