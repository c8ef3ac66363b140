"""What the pictures show: a small provider's line between network namespaces, with real traffic.

Three namespaces stand for the Internet, the box and the homes. Narrows runs in the box with the tree
of `provider.tc`. Each subscriber is an address of the homes, and iperf3 carries TCP and UDP to and
from it. All of it is gone when the scene ends.
"""

import os
import subprocess
import tempfile
import time

INTERNET, BOX, HOMES = "nrw-pic-internet", "nrw-pic-box", "nrw-pic-homes"
NAMES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names")
INTERNET_IP = "100.64.0.1"
QUEUES = 2
# What would hand over frames that no wire carries: without a checksum, or larger than the MTU.
OFFLOADS = "tx off tso off gso off gro off sg off".split()

# Subscriber, when it begins (s), and what iperf3 is asked for. `-R` uploads.
LOADS = [
    (1, 0, "-P 4"),
    (2, 0, "-P 1"),
    (2, 6, "-u -b 1M -l 200 -S 0xb8"),
    (3, 10, "-P 2 -S 0x20"),
    (4, 16, "-P 2"),
    (5, 22, "-u -b 6M -l 1200 -S 0x88"),
    (6, 28, "-P 8"),
    (1, 4, "-P 1 -R"),
    (6, 12, "-P 3 -R"),
    (3, 20, "-u -b 800K -l 200 -S 0xb8 -R"),
]


def address(subscriber):
    return f"100.64.1.{subscriber}"


def inside(namespace, *words):
    return ["ip", "netns", "exec", namespace, *words]


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Scene:
    """Up while it is entered: `with Scene(program) as scene`."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.children = []
        self.directory = tempfile.TemporaryDirectory(prefix="nrw-pictures-")

    def __enter__(self):
        try:
            self._networks()
            policy = os.path.join(os.path.dirname(__file__), "provider.tc")
            self.start(BOX, self.program, "run", "--round-trips", "--ports", "wan,lan", "--batch", policy)
            self._await_instance()
            self.start(BOX, self.program, "serve", "--names", NAMES)
            self._traffic()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            child.wait()
        self._forget_networks()
        self.directory.cleanup()

    def start(self, namespace, *words):
        """Starts a program in a namespace, and ends it with the scene."""
        log = open(os.path.join(self.directory.name, f"{len(self.children)}.log"), "w")
        child = subprocess.Popen(inside(namespace, *words), stdout=log, stderr=log)
        self.children.append(child)
        return child

    def _forget_networks(self):
        for namespace in (INTERNET, BOX, HOMES):
            if os.path.exists(f"/run/netns/{namespace}"):
                run("ip", "netns", "del", namespace)

    def _networks(self):
        self._forget_networks()
        for namespace in (INTERNET, BOX, HOMES):
            run("ip", "netns", "add", namespace)
            run(*inside(namespace, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"))
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        queues = f"numtxqueues {QUEUES} numrxqueues {QUEUES}".split()
        for port, far, device in (("wan", INTERNET, "net0"), ("lan", HOMES, "home0")):
            run("ip", "link", "add", port, "netns", BOX, *queues, "type", "veth",
                "peer", "name", device, "netns", far, *queues)
            for namespace, name in ((BOX, port), (far, device)):
                run(*inside(namespace, "ethtool", "-K", name, *OFFLOADS))
                run("ip", "-n", namespace, "link", "set", name, "up")
        run("ip", "-n", INTERNET, "addr", "add", f"{INTERNET_IP}/16", "dev", "net0")
        for subscriber in range(1, 7):
            run("ip", "-n", HOMES, "addr", "add", f"{address(subscriber)}/16", "dev", "home0")

    def _await_instance(self):
        """Until it answers and its ports forward."""
        for _ in range(100):
            shown = subprocess.run(inside(BOX, self.program, "show"), capture_output=True, text=True)
            if shown.stdout.startswith("narrows running"):
                return
            time.sleep(0.1)
        raise SystemExit(f"the instance does not run:\n{shown.stdout}{shown.stderr}")

    def _traffic(self):
        for number, (subscriber, _, _) in enumerate(LOADS):
            self.start(HOMES, "iperf3", "-s", "-B", address(subscriber), "-p", str(5201 + number))
        self.start(INTERNET, "ping", "-q", "-i", "0.2", address(2))
        time.sleep(0.5)
        for number, (subscriber, begin, words) in enumerate(LOADS):
            client = f"sleep {begin}; exec iperf3 -c {address(subscriber)} -p {5201 + number} -t 600 {words}"
            self.start(INTERNET, "sh", "-c", client)
