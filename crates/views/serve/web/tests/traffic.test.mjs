// The page of a real instance, with traffic between network namespaces: what is drawn is what
// `narrows tc -s` says. As root: NARROWS is the program, SERVE what serves its page (by default
// the same program).
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { browser, complaints } from "./serve.mjs";

const NARROWS = process.env.NARROWS;
const SERVE = (process.env.SERVE ?? `${NARROWS} serve --listen 127.0.0.1:9476 --names NAMES`).split(" ");
const URL = "http://127.0.0.1:9476/";
// The test itself runs in the namespace of the box: a browser there sees its loopback address.
const [NET, HOMES] = ["nrw-page-net", "nrw-page-homes"];
const POLICY = `
qdisc replace dev lan root handle 1: htb default 30
class add dev lan parent 1: classid 1:1 htb rate 20mbit
class add dev lan parent 1:1 classid 1:10 htb rate 4mbit ceil 8mbit
class add dev lan parent 1:1 classid 1:30 htb rate 1mbit ceil 20mbit
filter add dev lan parent 1: prio 1 protocol ip flower dst_ip 100.64.1.1 classid 1:10
qdisc replace dev wan root handle 1: htb default 30
class add dev wan parent 1: classid 1:1 htb rate 10mbit
class add dev wan parent 1:1 classid 1:10 htb rate 1mbit ceil 2mbit
class add dev wan parent 1:1 classid 1:30 htb rate 1mbit ceil 10mbit
filter add dev wan parent 1: prio 1 protocol ip flower src_ip 100.64.1.1 classid 1:10
`;

const children = [];
const run = (...words) => execFileSync(words[0], words.slice(1), { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
const start = (...words) => {
  const child = spawn(words[0], words.slice(1), { stdio: "ignore" });
  children.push(child);
  return child;
};
const ended = (child) => new Promise((done) => child.once("exit", done));
const within = (namespace) => ["ip", "netns", "exec", namespace];
const tc = (dev) => JSON.parse(run(NARROWS, "tc", "-s", "-j", "class", "show", "dev", dev)).find((one) => one.handle === "1:10").stats;

async function until(what, holds) {
  for (let tries = 0; tries < 200; tries += 1) {
    if (await holds()) return;
    await wait(100);
  }
  assert.fail(`not within 20 s: ${what}`);
}

let directory;
let chromium;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), "nrw-page-"));
  const [policy, names] = [join(directory, "policy.tc"), join(directory, "names")];
  writeFileSync(policy, POLICY);
  writeFileSync(names, "1:1 hill\n1:10 Ann\n1:30 others\n");
  run("ip", "link", "set", "lo", "up");
  for (const [namespace, port, device, address] of [[NET, "wan", "net0", "100.64.0.1/16"], [HOMES, "lan", "home0", "100.64.1.1/16"]]) {
    run("ip", "netns", "add", namespace);
    run("ip", "link", "add", port, "type", "veth", "peer", "name", device, "netns", namespace);
    run("ip", "link", "set", port, "up");
    run("ethtool", "-K", port, "tx", "off");
    run(...within(namespace), "ethtool", "-K", device, "tx", "off");
    run("ip", "-n", namespace, "link", "set", device, "up");
    run("ip", "-n", namespace, "addr", "add", address, "dev", device);
  }
  start(NARROWS, "run", "--ports", "wan,lan", "--batch", policy);
  await until("the instance runs", () => {
    try {
      return run(NARROWS, "show").startsWith("narrows running");
    } catch {
      return false;
    }
  });
  start(...SERVE.map((word) => (word === "NAMES" ? names : word)));
  await until("the page is served", () => fetch(`${URL}api/rows`).then((answer) => answer.ok, () => false));
  start(...within(HOMES), "iperf3", "-s", "-B", "100.64.1.1");
  chromium = await browser();
});
after(async () => {
  await chromium?.close();
  for (const child of children.reverse()) {
    const gone = child.exitCode === null ? ended(child) : undefined;
    child.kill();
    await gone;
  }
  for (const namespace of [NET, HOMES]) run("ip", "netns", "del", namespace);
  rmSync(directory, { recursive: true, force: true });
});

test("rates while traffic passes, and counters after it, are those of tc -s", async () => {
  const page = await chromium.newPage({ viewport: { width: 1440, height: 900 } });
  const found = complaints(page);
  await page.goto(`${URL}#/subscriber/Ann`);
  await page.waitForSelector(".port.up .bytes");
  assert.equal(await page.textContent(".port.down h2"), "Download (leaves lan)");
  assert.match(await page.textContent(".place"), /hill › class 1:10, 100\.64\.1\.1/);
  const load = start(...within(NET), "iperf3", "-c", "100.64.1.1", "-u", "-b", "6M", "-l", "1200", "-t", "6");
  await wait(2000);
  const [was, at] = [tc("lan").bytes, performance.now()];
  await wait(2500);
  const drawn = await page.textContent(".port.down .delivered");
  const rate = ((tc("lan").bytes - was) * 8) / (performance.now() - at) / 1e3;
  const [number, unit] = drawn.split(" ");
  assert.equal(unit, "Mbit/s");
  assert.ok(Math.abs(Number(number) - rate) < 0.15 * rate, `drawn ${drawn}, by tc -s ${rate.toFixed(2)} Mbit/s`);
  assert.ok(rate > 5, `${rate.toFixed(2)} Mbit/s pass`);
  await ended(load);
  // Nothing more passes now, so both see the same counters.
  await until("the counters of both directions are those of tc -s", async () => {
    const shown = await page.$$eval(".port .bytes", (all) => all.map((one) => one.textContent));
    return shown.join() === ["lan", "wan"].map((dev) => `${tc(dev).bytes.toLocaleString("en-GB")} bytes`).join();
  });
  await page.goto(`${URL}#/subscribers?search=100.64.1.1`);
  await page.waitForFunction(() => document.querySelector("#total")?.textContent === "1 subscriber");
  assert.deepEqual(found, []);
});
