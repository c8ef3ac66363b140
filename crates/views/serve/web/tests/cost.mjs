// What the page takes: node tests/cost.mjs SUBSCRIBERS [SECONDS]. For each screen: what the server
// sends, and the shares of a core that the server and the browser take, with and without the page.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { browser } from "./serve.mjs";

const [subscribers = "2000", seconds = "20"] = process.argv.slice(2);
const program = process.env.PROVIDER;
const directory = mkdtempSync(join(tmpdir(), "nrw-page-"));
const socket = join(directory, "instance.sock");
const instance = spawn(program, [subscribers, socket], { stdio: "inherit" });
await wait(1000);
const serve = spawn(program, [socket, "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
const { value: url } = await createInterface({ input: serve.stdout })[Symbol.asyncIterator]().next();

/** The CPU time of a process and of what it started, in seconds. */
function cpu(pid) {
  const stats = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((name) => {
    try {
      const text = readFileSync(`/proc/${name}/stat`, "utf8");
      const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
      return [{ pid: Number(name), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) }];
    } catch {
      return [];
    }
  });
  const below = new Set([pid]);
  let grown = true;
  while (grown) {
    grown = false;
    for (const one of stats) if (below.has(one.parent) && !below.has(one.pid)) { below.add(one.pid); grown = true; }
  }
  return stats.filter((one) => below.has(one.pid)).reduce((sum, one) => sum + one.ticks, 0) / 100;
}

// However it ends.
process.on("exit", () => {
  serve.kill();
  instance.kill();
  rmSync(directory, { recursive: true, force: true });
});

const share = (was, is) => `${((100 * (is - was)) / Number(seconds)).toFixed(1)} %`;
const chromium = await browser();
const main = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).find((name) => {
  try {
    return readFileSync(`/proc/${name}/stat`, "utf8").includes("(chromium)") && readFileSync(`/proc/${name}/stat`, "utf8").split(") ")[1].split(" ")[1] === String(process.pid);
  } catch {
    return false;
  }
});
// The first answer of many subscribers takes some seconds.
for (let tries = 0; ; tries += 1) {
  const answer = await fetch(`${url}api/rows`);
  if (answer.ok && (await answer.json()).total > 0) break;
  if (tries === 120) throw new Error("the instance has not answered for a minute: use fewer subscribers, or another machine");
  await wait(500);
}
console.log(`${subscribers} subscribers, ${seconds} s each`);
let before = cpu(serve.pid);
await wait(1000 * Number(seconds));
console.log(`no page: serve ${share(before, cpu(serve.pid))}`);
for (const screen of ["", "subscribers", "subscriber/Ann%201000", "box"]) {
  const page = await chromium.newPage({ viewport: { width: 1440, height: 900 } });
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  let bytes = 0;
  session.on("Network.dataReceived", (event) => { bytes += event.dataLength; });
  await page.goto(`${url}#/${screen}`);
  await page.waitForSelector("main section");
  await wait(3000);
  const first = bytes;
  const [server, client] = [cpu(serve.pid), cpu(Number(main))];
  await wait(1000 * Number(seconds));
  console.log(`#/${screen}: ${((bytes - first) / Number(seconds) / 1000).toFixed(1)} kB/s, serve ${share(server, cpu(serve.pid))}, browser ${share(client, cpu(Number(main)))}, first ${(first / 1000).toFixed(0)} kB`);
  await page.close();
}
await chromium.close();
process.exit();
