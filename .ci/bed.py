"""An instance in network namespaces of its own, and what its changes cost.

For the commands beside it that measure how long changes take. They start with `sys.dont_write_bytecode`,
so that nothing is left here.
"""

import ctypes
import os
import queue
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CLONE_NEWNET = 0x4000_0000
BOX, A, B = "nrw-st-box", "nrw-st-a", "nrw-st-b"


def processor_ms(process):
    """The processor time of a process so far."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(*words):
    subprocess.run(words, check=True)


def percentiles(times):
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"median {statistics.median(ordered):.0f} ms, 95 % {p95:.0f} ms, longest {ordered[-1]:.0f} ms"


class Bed:
    """An instance between two veths, in network namespaces of their own, and narrows-sync beside it."""

    # The options of the instance, and where its messages go.
    options = ["--ports", "port-a,port-b"]
    messages = subprocess.DEVNULL

    def __init__(self, narrows, sync=None):
        self.narrows, self.sync = os.path.abspath(narrows), sync and os.path.abspath(sync)
        self.processes, self.folder = [], tempfile.mkdtemp(prefix="nrw-st-")
        # When the instance had taken commands, and how many.
        self.given = queue.Queue()

    def __enter__(self):
        for name in (BOX, A, B):
            run("ip", "netns", "add", name)
        for port, end in (("port-a", A), ("port-b", B)):
            run("ip", "link", "add", port, "netns", BOX, "type", "veth", "peer", "name", "veth0", "netns", end)
            run("ip", "-n", BOX, "link", "set", port, "up")
            run("ip", "-n", end, "link", "set", "veth0", "up")
        run("ip", "-n", BOX, "link", "set", "lo", "up")
        words = [self.narrows, "run", *self.options]
        self.instance = self.start(words, stdout=subprocess.DEVNULL, stderr=self.messages)
        time.sleep(3)
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        for name in (BOX, A, B):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, words):
        """Words that execute a program in the namespace, in their own place."""
        return ["ip", "netns", "exec", BOX, *words]

    def start(self, words, **options):
        self.processes.append(subprocess.Popen(self.inside(words), **options))
        return self.processes[-1]

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text):
        with open(self.path(name), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        return self.path(name)

    def words(self, *command):
        """narrows-sync with this command, as a service has it: with files for the next start."""
        files = ["--store", self.path("store"), "--policy", self.path("policy"), "--names", self.path("names")]
        return [self.sync, *command, *files, "--ports", "port-a,port-b"]

    def follow(self, *command):
        """Starts narrows-sync with a command that runs on."""
        environment = {**os.environ, "RUST_LOG": "info"}
        self.daemon = self.start(self.words(*command), env=environment, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.daemon.stderr:
            found = re.search(r"gave the instance ([\d,]+) command", line)
            if found:
                self.given.put((time.monotonic(), int(found.group(1).replace(",", ""))))
            elif "WARN" in line or "ERROR" in line:
                print(line.strip(), file=sys.stderr)

    def enter(self):
        """Moves this thread, and those that it starts, into the namespace."""
        with open(f"/run/netns/{BOX}") as namespace:
            # os.setns is new in Python 3.12, and Debian 12 has 3.11.
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def until(self, commands):
        """Waits until the instance has taken so many commands. Returns how many, and when."""
        taken, last = 0, time.monotonic()
        while taken < commands:
            last, more = self.given.get(timeout=300)
            taken += more
        return taken, last

    def times(self, changes, request):
        """How long `changes` requests take, one at a time, until each is in force."""
        both = (self.daemon, self.instance)
        found, before = [], [processor_ms(one) for one in both]
        for change in range(changes):
            time.sleep(0.3 + 0.05 * random.random())
            sent = time.monotonic()
            request(change)
            at, _ = self.given.get(timeout=60)
            found.append(1000 * (at - sent))
        took = [(processor_ms(one) - was) / changes for one, was in zip(both, before)]
        return f"{percentiles(found)}; processor time narrows-sync {took[0]:.0f} ms, instance {took[1]:.0f} ms"


def numbers(words, defaults):
    """The numbers behind the first two words of the command line, or those that stand for them."""
    return [int(word) for word in (words[2:] + defaults[len(words) - 2:])[:len(defaults)]]
