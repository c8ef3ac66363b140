// Whether the table of very many subscribers is smooth: node tests/size.mjs SUBSCRIBERS. For each thing
// that a person does with it: how many tasks of the page took more than 50 ms (by the Long Tasks API,
// https://w3c.github.io/longtasks/), the longest, and how many elements there are after it. Exits with 1
// if elements are above a bound, which holds on any machine; tasks are printed to be judged.
import { browser, provider } from "./serve.mjs";

const [subscribers = "100000"] = process.argv.slice(2);
/** Rows in sight, those around them, and the rest of the screen. */
const ELEMENTS_MAX = 3000;

const server = await provider(Number(subscribers));
const chromium = await browser();
const page = await chromium.newPage({ viewport: { width: 1440, height: 900 } });
await page.addInitScript(() => {
  window.longTasks = [];
  new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
});
await page.goto(`${server.url}#/subscribers?sort=name&desc=0`);
await page.waitForFunction(() => document.querySelectorAll(".grid tbody tr[data-id]").length > 20, undefined, { timeout: 120_000 });

const settled = () => page.waitForFunction(() => document.querySelector(".grid tbody tr[data-id]") && !document.querySelector(".grid tbody tr.empty"), undefined, { timeout: 60_000 });
let most = 0;
async function doing(what, act) {
  await settled();
  await page.evaluate(() => { window.longTasks.length = 0; });
  await act();
  const { tasks, elements } = await page.evaluate(() => ({ tasks: window.longTasks.slice(), elements: document.querySelectorAll("*").length }));
  most = Math.max(most, elements);
  console.log(`${what}: ${tasks.length} over 50 ms, longest ${Math.round(Math.max(0, ...tasks))} ms; ${elements} elements`);
}

console.log(`${subscribers} subscribers`);
await doing("wheel, 200 steps", async () => {
  await page.hover(".grid");
  for (let step = 0; step < 200; step += 1) await page.mouse.wheel(0, 300);
  await settled();
});
await doing("drag through the whole table, 50 places", async () => {
  for (let place = 1; place <= 50; place += 1) {
    await page.$eval(".grid", (grid, part) => grid.scrollTo(0, grid.scrollHeight * part), place / 50);
    await page.waitForTimeout(20);
  }
  await settled();
});
for (const column of ["quality", "score", "Rate, down", "Delay p99, up"]) {
  await doing(`sort by ${column}`, async () => {
    await page.click(`thead button[aria-label="${column}"]`);
    await page.waitForSelector(`thead th[aria-sort] button[aria-label="${column}"]`);
    await page.waitForTimeout(1500);
    await settled();
  });
}
await doing("type into the search", async () => {
  await page.keyboard.press("/");
  await page.keyboard.type("hillside 2", { delay: 60 });
  await page.waitForFunction(() => location.hash.includes("search=hillside+2"));
  await page.waitForTimeout(3000);
  await settled();
});
await doing("ten seconds of new figures", () => page.waitForTimeout(10_000));
await chromium.close();
server.end();
if (most > ELEMENTS_MAX) {
  console.error(`there are ${most} elements, and not at most ${ELEMENTS_MAX}: rows that are not in sight are drawn`);
  process.exitCode = 1;
}
