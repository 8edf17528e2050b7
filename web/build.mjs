// Builds the dashboard into the crate that holds it. With --check: compares, byte for byte, and changes nothing.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";

const target = new URL("../crates/server/src/dashboard/", import.meta.url);
const check = process.argv.includes("--check");
const result = await build({
  entryPoints: [
    { in: "src/main.ts", out: "dashboard" },
    { in: "src/style.css", out: "dashboard" },
  ],
  absWorkingDir: new URL(".", import.meta.url).pathname,
  outdir: "out",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  // The notices of what is bundled stay in it.
  legalComments: "inline",
  banner: { js: "/*! uPlot 1.6: MIT License, Copyright (c) 2022 Leon Sorokin, https://github.com/leeoniya/uPlot */" },
  write: false,
});
const files = result.outputFiles.map((file) => [file.path.split("/").at(-1), file.text]);
files.push(["index.html", await readFile(new URL("src/index.html", import.meta.url), "utf8")]);
let stale = 0;
for (const [name, text] of files) {
  const path = new URL(name, target);
  const committed = await readFile(path, "utf8").catch(() => "");
  if (committed === text) continue;
  if (check) {
    console.error(`${name} is not what web/ builds to: run "npm run build" in web/ and commit it`);
    stale += 1;
  } else {
    await writeFile(path, text);
    console.log(`${name}: ${text.length} bytes`);
  }
}
process.exit(stale === 0 ? 0 : 1);
