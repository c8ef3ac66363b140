// Starts a server of the page with made-up subscribers, and a browser.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

/** `provider` of the examples: cargo says where it is. */
const program = process.env.PROVIDER;

/** A provider with so many subscribers; `stop` lets its instance end. */
export async function provider(subscribers) {
  if (!program) throw new Error("PROVIDER is the path of the example `provider`: make page-tests");
  const directory = mkdtempSync(join(tmpdir(), "nrw-page-"));
  const gone = join(directory, "gone");
  const process = spawn(program, [String(subscribers), "127.0.0.1:0", gone], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface({ input: process.stdout });
  const { value: url } = await lines[Symbol.asyncIterator]().next();
  return {
    url,
    pid: process.pid,
    stop: () => writeFileSync(gone, ""),
    start: () => rmSync(gone, { force: true }),
    end: () => {
      process.kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

// As root it has no sandbox; it sees only our own page.
export const browser = () => chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });

/** What the page did wrong. A path that is only there with a history is no fault. */
export function complaints(page) {
  const found = [];
  page.on("pageerror", (error) => found.push(error.message));
  page.on("console", (message) => {
    const { url } = message.location();
    const isMissing = ["/api/history/series", "/api/quality"].some((path) => url.includes(path));
    if (message.type() === "error" && !isMissing) found.push(message.text());
  });
  page.on("request", (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol !== "data:" && hostname !== "127.0.0.1") found.push(`it loads ${request.url()}`);
  });
  return found;
}
