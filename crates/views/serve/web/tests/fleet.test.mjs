// The box's screen of a fleet: who is silent, and the sum of all boxes beside each limit.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, complaints, provider } from "./serve.mjs";

let server;
let chromium;
before(async () => {
  [server, chromium] = await Promise.all([provider(100), browser()]);
});
after(async () => {
  await chromium?.close();
  server?.end();
});

const cells = (page, label) =>
  page.$$eval(`#fleet [aria-label="${label}"] tbody tr`, (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));

test("a fleet has its boxes with their leases, and each limit the sum of all boxes", async () => {
  const page = await chromium.newPage();
  const found = complaints(page);
  await page.goto(`${server.url}#/box`);
  await page.waitForSelector("#fleet");
  assert.equal(await page.textContent("#fleet h2"), "Fleet edge");
  assert.equal(await page.textContent("#fleet .alarm"), "partition: 1 of 3 boxes silent");
  const [north, east, west] = await cells(page, "Boxes of the fleet");
  assert.deepEqual([north, east], [["north", "this box", ""], ["east", "heard 30 ms ago", "1970 ms"]]);
  assert.match(west[1], /^SILENT for \d+ m?s$/);
  const [sum, ...each] = await cells(page, "Shared limits");
  assert.deepEqual(sum, ["transit", "", "", "900 Mbit/s", "570 Mbit/s", "63 %", "limit 900 Mbit/s"]);
  assert.deepEqual(each, [
    ["transit: north", "more", "560 Mbit/s", "560 Mbit/s", "540 Mbit/s", "96 %", "held back by its share"],
    ["transit: east", "40.0 Mbit/s", "40.0 Mbit/s", "40.0 Mbit/s", "30.0 Mbit/s", "75 %", ""],
    ["transit: west", "40.0 Mbit/s", "", "300 Mbit/s", "0 bit/s", "0 %", "SILENT: its safe share"],
  ]);
  await page.close();
  assert.deepEqual(found, []);
});
