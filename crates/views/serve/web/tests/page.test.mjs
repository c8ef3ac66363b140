// The page in a browser: what it shows is what the server has, anybody can read it, nothing breaks.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { browser, complaints, provider } from "./serve.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SCREENS = ["", "subscribers", "sites", "hosts", "subscriber/Ann%201000", "site/Hillside%201", "host/198.51.100.2", "box"];

let server;
/** With fewer rectangles and the same elements: the checker looks at each. */
let small;
let chromium;
before(async () => {
  [server, small, chromium] = await Promise.all([provider(2000), provider(100), browser()]);
});
after(async () => {
  await chromium?.close();
  server?.end();
  small?.end();
});

async function open(hash, options = {}, from = server) {
  const page = await chromium.newPage({ viewport: { width: 1440, height: 900 }, bypassCSP: false, ...options });
  const found = complaints(page);
  await page.goto(`${from.url}#/${hash}`);
  await page.waitForSelector("main section");
  return { page, found, close: async () => { await page.close(); assert.deepEqual(found, []); } };
}

const rows = async (query) => (await fetch(`${server.url}api/rows?${query}`)).json();
const shown = (page) => page.$$eval(".grid tbody tr[data-id]", (all) => all.map((row) => row.dataset.id));

describe("accessible to everybody (WCAG 2.2 AA, by axe-core)", () => {
  for (const [name, options] of [
    ["light", { colorScheme: "light" }],
    ["dark", { colorScheme: "dark" }],
    ["phone, light", { colorScheme: "light", viewport: { width: 390, height: 844 } }],
    ["phone, dark", { colorScheme: "dark", viewport: { width: 390, height: 844 } }],
  ]) {
    test(name, async () => {
      // The checker is a script of the test's, which the page's policy would refuse.
      const { page, close } = await open("", { ...options, bypassCSP: true }, small);
      await page.addScriptTag({ content: axe });
      for (const screen of SCREENS) {
        await page.evaluate((hash) => { location.hash = `#/${hash}`; }, screen);
        await page.waitForFunction(() => document.querySelector("main section") && !document.querySelector("main > .none"));
        await page.waitForTimeout(300);
        const result = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] }));
        const said = result.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
        assert.deepEqual(said, [], `screen #/${screen}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
        assert.equal(wide, false, `screen #/${screen} is wider than the window`);
      }
      await close();
    });
  }
});

test("the first screen names both directions, their rate beside the limit, and who suffers", async () => {
  const { page, close } = await open("");
  await page.waitForFunction(() => document.querySelectorAll(".port .delivered").length === 2);
  const heads = await page.$$eval(".port h2", (all) => all.map((one) => one.textContent));
  assert.deepEqual(heads, ["Download (leaves lan)", "Upload (leaves wan)"]);
  const big = await page.$$eval(".port .big", (all) => all.map((one) => one.textContent));
  big.forEach((text) => assert.match(text, /^[\d.]+ [MG]bit\/s of [\d.]+ [MG]bit\/s \(\d+ %\)$/));
  const worst = await page.$$eval(".worst tbody th a", (all) => all.map((one) => one.textContent));
  assert.ok(worst.length > 0 && worst.length <= 12, `${worst.length} suffer`);
  const why = await page.$eval(".worst tbody .why", (one) => one.textContent);
  assert.match(why, /delay|drops|ceiling|loss/);
  assert.ok((await page.$$(".map .tile")).length > 50);
  // One screenful: nothing has to be scrolled for.
  const bottom = await page.$eval(".now .sites", (one) => one.getBoundingClientRect().bottom);
  assert.ok(bottom <= 900, `the sites end at ${bottom}`);
  await close();
});

test("the first screen goes on by itself", async () => {
  const { page, close } = await open("");
  const rate = () => page.$eval(".port.down .delivered", (one) => one.textContent);
  const was = await rate();
  await page.waitForFunction((text) => document.querySelector(".port.down .delivered")?.textContent !== text, was);
  await close();
});

test("rows are in the server's order, by any column", async () => {
  const { page, close } = await open("subscribers?sort=name&desc=0");
  await page.waitForSelector(".grid tbody tr[data-id]");
  const expected = (await rows("sort=name&desc=0&limit=20")).rows.map((row) => row.id);
  assert.deepEqual((await shown(page)).slice(0, 20), expected);
  await page.click("thead button:has-text('subscriber')");
  await page.waitForFunction((id) => document.querySelector(".grid tbody tr[data-id]")?.dataset.id !== id, expected[0]);
  assert.equal((await shown(page))[0], (await rows("sort=name&desc=1&limit=1")).rows[0].id);
  assert.equal(await page.getAttribute("thead th[aria-sort]", "aria-sort"), "descending");
  // The ceiling does not change, so both are of the same order.
  await page.goto(`${server.url}#/subscribers?sort=ceil_up`);
  await page.waitForFunction((id) => document.querySelector(".grid tbody tr[data-id]")?.dataset.id === id, (await rows("sort=ceil_up&limit=1")).rows[0].id);
  await close();
});

test("what a row shows is what the server says of it", async () => {
  const { page, close } = await open("subscribers?sort=name&desc=0&search=Ann+1000");
  await page.waitForSelector("tr[data-id='Ann 1000']");
  assert.equal(await page.textContent("#total"), "1 subscriber");
  // The figures of one second: the stream's last message and the answer to a query are the same.
  await page.waitForFunction(async () => {
    const { rows: [row] } = await (await fetch("api/rows?search=Ann+1000")).json();
    const cells = [...document.querySelectorAll("tr[data-id='Ann 1000'] td")].map((cell) => cell.textContent);
    const digits = (value) => (value === undefined ? "–" : value === 0 ? "0" : value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.00995 ? 2 : 3));
    const at = (side, figure, unit) => digits(side[figure] === undefined ? undefined : side[figure] / unit);
    const score = row.score === undefined ? "–" : `${row.score.percent} %`;
    return cells[1] === score && cells[2] === row.site && cells[3] === at(row.down, "rate", 1e6) && cells[4] === at(row.up, "rate", 1e6) && cells[7] === at(row.down, "delay", 1e3);
  });
  await close();
});

test("any of the rows can be scrolled to, and only those in sight are there", async () => {
  const { page, close } = await open("subscribers?sort=name&desc=0");
  await page.waitForSelector(".grid tbody tr[data-id]");
  const last = (await rows("sort=name&desc=0&offset=1990&limit=10")).rows.map((row) => row.id);
  await page.$eval(".grid", (grid) => grid.scrollTo(0, grid.scrollHeight));
  await page.waitForSelector(`tr[data-id='${last[9]}']`);
  assert.deepEqual((await shown(page)).slice(-10), last);
  assert.ok((await page.$$(".grid tbody tr")).length < 60);
  assert.equal(await page.getAttribute("tr[data-id]:last-of-type", "aria-rowindex"), "2002");
  await close();
});

test("a search finds names, classes and sites, and its address can be sent to others", async () => {
  const { page, close } = await open("");
  await page.keyboard.press("/");
  await page.keyboard.type("hillside 2");
  await page.waitForFunction(() => document.querySelector("#total")?.textContent.startsWith("48 "));
  assert.match(page.url(), /#\/subscribers\?search=hillside\+2$/);
  const other = await open(page.url().split("#/")[1]);
  await other.page.waitForFunction(() => document.querySelector("#total")?.textContent.startsWith("48 "));
  await other.close();
  await page.fill("#search", "no such name");
  await page.waitForFunction(() => document.querySelector("#total")?.textContent === "0 subscribers");
  assert.match(await page.textContent(".grid"), /No subscriber has “no such name”/);
  await close();
});

test("a subscriber's screen has both directions, tins and exact counters", async () => {
  const { page, close } = await open("subscriber/Ann%201000");
  await page.waitForSelector(".port.up .bytes");
  assert.equal(await page.textContent(".who h2"), "Ann 1000");
  assert.match(await page.textContent(".place"), /uplink › Hillside 1 › class 1:3/);
  await page.waitForFunction(async () => {
    const is = await (await fetch("api/row?id=Ann+1000")).json();
    const text = (way) => document.querySelector(`.port.${way} .bytes`)?.textContent;
    return ["down", "up"].every((way) => text(way) === `${is[way].bytes.toLocaleString("en-GB")} bytes`);
  });
  assert.match(await page.textContent("section[aria-label=Tins]"), /Download: Best Effort/);
  await page.click(".place a:text-is('Hillside 1')");
  await page.waitForFunction(() => document.querySelector(".who h2")?.textContent === "Hillside 1");
  await page.click("a:text-is('48 members')");
  await page.waitForFunction(() => document.querySelector("#total")?.textContent.startsWith("48 "));
  await page.goto(`${server.url}#/subscriber/Nobody`);
  await page.waitForSelector("text=There is no subscriber with this name now.");
  await close();
});

test("the score that suffers most comes first, and its subscriber's screen says what it means", async () => {
  const { page, close } = await open("subscribers?sort=score&desc=1");
  await page.waitForSelector(".grid tbody tr[data-id]");
  const { rows: [best] } = await rows("sort=score&desc=1&limit=1");
  assert.equal(typeof best.score.percent, "number");
  await page.evaluate((id) => { location.hash = `#/subscriber/${encodeURIComponent(id)}`; }, best.id);
  await page.waitForSelector(".outcomes tbody tr");
  // The figures of one second: the stream's last message and the answer to a query are the same.
  await page.waitForFunction(async (id) => {
    const { scores } = await (await fetch(`api/row?${new URLSearchParams({ id })}`)).json();
    const drawn = [...document.querySelectorAll(".outcomes tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
    return scores.length === 3 && scores.every((score, number) => {
      const [application, percent, meaning] = drawn[number] ?? [];
      return application === score.application && percent === (score.percent === null ? "–" : `${score.percent} %`) && meaning?.startsWith(score.meaning);
    });
  }, best.id);
  await close();
});

test("the help has the scale of the server", async () => {
  const { page, close } = await open("");
  await page.keyboard.press("?");
  await page.waitForFunction(() => /good: at most 20 ms and 2 %; fair: at most 50 ms and 5 %/.test(document.querySelector("#help")?.textContent ?? ""));
  await close();
});

test("keys lead everywhere", async () => {
  const { page, close } = await open("");
  for (const [key, hash] of [["s", "#/subscribers"], ["i", "#/sites"], ["h", "#/hosts"], ["b", "#/box"], ["n", "#/"]]) {
    await page.keyboard.press(key);
    await page.waitForFunction((expected) => location.hash === expected, hash);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await page.keyboard.press("s");
  await page.waitForSelector(".grid tbody tr[data-id]");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".one");
  await page.keyboard.press("u");
  await page.waitForSelector(".grid");
  await page.keyboard.press("p");
  await page.waitForSelector(".banner:has-text('Paused')");
  await close();
});

test("a stop cannot be overlooked, and old figures do not look like new ones", async () => {
  const { page, close } = await open("");
  await page.waitForSelector(".banner.good");
  server.stop();
  await page.waitForSelector(".banner.bad");
  const said = await page.textContent(".banner.bad p");
  assert.match(said, /^Stopped.*Traffic passes UNSHAPED over the bridge nrwbr2\..*figures below are those of \d\d:\d\d:\d\d/);
  assert.equal(await page.$eval("main", (main) => getComputedStyle(main).filter), "grayscale(1)");
  server.start();
  await page.waitForSelector(".banner.good");
  assert.equal(await page.$eval("main", (main) => getComputedStyle(main).filter), "none");
  await close();
});
