// Bundles the front end into dist/: index.html, app.js and app.css, complete in themselves, with no address of any host.
// Run by `npm run build`, and by the build of the viewer crate when Node is there.
import { copyFile, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
// The build of the crate names a directory of its own: a build never writes into the sources there.
const target = process.argv[2] ?? join(here, "dist");

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: join(source, "main.tsx") },
  outdir: target,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2021"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
await copyFile(join(source, "index.html"), join(target, "index.html"));
