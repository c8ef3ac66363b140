// Takes pictures of every screen, to look at: node tests/look.mjs URL DIRECTORY
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, directory] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const SCREENS = ["", "subscribers", "sites", "hosts", "subscriber/Ann%201000", "box"];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const [name, width, height, colorScheme] of [
  ["light", 1440, 900, "light"],
  ["dark", 1440, 900, "dark"],
  ["phone", 390, 844, "light"],
]) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme });
  page.on("pageerror", (error) => console.error(`${name}: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && console.error(`${name}: ${message.text()}`));
  for (const screen of SCREENS) {
    await page.goto(`${url}#/${screen}`);
    await page.waitForSelector("main section");
    await page.waitForTimeout(2500);
    const path = join(directory, `${name}-${screen.split("/")[0] || "now"}.png`);
    await page.screenshot({ path, fullPage: name === "phone" });
  }
  await page.close();
}
await browser.close();
