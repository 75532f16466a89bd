// Runs the unit tests with Node's own test runner. Older Nodes read no TypeScript, so esbuild translates it first.
import { mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const tests = (await readdir(join(here, "test"))).filter((name) => name.endsWith(".test.ts"));
const target = await mkdtemp(join(tmpdir(), "viewer-tests-"));
try {
  await build({
    absWorkingDir: here,
    entryPoints: tests.map((name) => join(here, "test", name)),
    outdir: target,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: ["node18"],
    logLevel: "warning",
  });
  await symlink(join(here, "node_modules"), join(target, "node_modules"));
  const files = tests.map((name) => join(target, name.replace(/\.ts$/, ".mjs")));
  const run = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: here });
  process.exitCode = run.status ?? 1;
} finally {
  await rm(target, { recursive: true, force: true });
}
