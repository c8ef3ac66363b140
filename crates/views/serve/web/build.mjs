// Builds the page: `node build.mjs` writes ../assets, `node build.mjs --check` says whether what is
// there is what the sources give.
import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "assets");
const made = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  outdir: assets,
  write: false,
  logLevel: "warning",
});
const files = new Map(made.outputFiles.map((file) => [file.path, Buffer.from(file.contents)]));
files.set(join(assets, "index.html"), readFileSync(join(here, "src", "index.html")));
let differs = false;
for (const [path, content] of files) {
  if (!process.argv.includes("--check")) {
    writeFileSync(path, content);
    console.log(`${path.slice(assets.length + 1)}: ${content.length} bytes`);
    continue;
  }
  let old;
  try {
    old = readFileSync(path);
  } catch {
    old = Buffer.alloc(0);
  }
  if (!old.equals(content)) {
    console.error(`${path} is not what its sources give: make page`);
    differs = true;
  }
}
process.exitCode = differs ? 1 : 0;
