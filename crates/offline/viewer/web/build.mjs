// Bundles the front end into dist/: index.html, app.js and app.css, complete in themselves, with no address of any host;
// and report.html, the same page in one file, with room for the contents of a report.
// Run by `npm run build`, and by the build of the viewer crate when Node is there.
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
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

const script = (await readFile(join(target, "app.js"), "utf8")).trim();
const style = (await readFile(join(target, "app.css"), "utf8")).trim();
if (/<\/script|<!--|\r/i.test(script)) throw new Error("app.js cannot stand inside of a page");
if (/<\/style|\r/i.test(style)) throw new Error("app.css cannot stand inside of a page");
// The page of a report runs this script and nothing else, whatever the names in the report are.
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const page = (await readFile(join(source, "report.html"), "utf8"))
  .replace("{script-hash}", () => hash(script))
  .replace("{style-hash}", () => hash(style))
  .replace("{style}", () => style)
  .replace("{script}", () => script);
await writeFile(join(target, "report.html"), page);
