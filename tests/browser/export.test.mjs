// Exported files, opened by tools that are not ours: Perfetto's trace processor, speedscope, Mozilla's profiler-cli and
// Go's pprof where there is one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import * as support from "./support.mjs";

describe("exports of the job of make demo", { timeout: 600_000 }, () => {
  let demo, analysis, pta;

  before(() => {
    demo = support.recordDemo("exported");
    [analysis] = support.analyze(demo);
    pta = analysis.summary.pools.find((pool) => pool.pool === "PTA");
  });

  test("Perfetto shows pools, steps and their times", { skip: support.withoutPerfetto }, () => {
    const file = support.exportTo(demo, "perfetto", "demo.perfetto-trace");
    const [counters, steps, complaints, open] = support.askPerfetto(
      file,
      "select name, max(value) as peak, count(*) as count from counter join counter_track t on track_id = t.id group by 1",
      "select name, min(dur) as shortest from slice where name glob 'step [0-9]*' group by 1 order by min(ts)",
      "select name, value from stats where severity != 'info' and value > 0",
      "select count(*) as count from slice where dur < 0",
    );
    assert.deepEqual(complaints, []);
    assert.deepEqual(open, [{ count: 0 }]);
    const used = counters.find((counter) => counter.name === "NPU 0: PyTorch caching in use");
    assert.equal(used.peak, pta.peak_used_bytes);
    assert.equal(used.count, pta.allocations + pta.frees);
    assert.equal(steps.length, analysis.summary.steps);
    assert.deepEqual(
      steps.map((step) => step.name),
      steps.map((_, index) => `step ${index + 1}`),
    );
    assert.ok(steps.every((step) => step.shortest > 0));
  });

  const hasGo = spawnSync("go", ["version"]).status === 0;
  test("go tool pprof adds up what is never freed", { skip: !hasGo && "Go is not installed" }, () => {
    const file = support.exportTo(demo, "pprof", "demo-go.pb.gz");
    const words = ["tool", "pprof", "-sample_index=alive_space", "-unit=b", "-top", "-cum", file];
    const home = mkdtempSync(join(support.scratch, "home-"));
    const top = spawnSync("go", words, { encoding: "utf8", env: { ...process.env, HOME: home } });
    assert.equal(top.status, 0, top.stderr);
    const [, kept] = top.stdout.match(/ (\d+)B +[\d.]+% +remember_loss/) ?? assert.fail(top.stdout);
    assert.equal(Number(kept), analysis.summary.steps * 3 * 1024 * 1024, "3 MiB for each step");
  });

  test("the Firefox Profiler shows memory by pool and the line that leaks", async () => {
    const file = support.exportTo(demo, "firefox-profiler", "demo.firefox-profiler.json");
    // It leaves a server behind that later calls find in the home directory.
    const home = mkdtempSync(join(support.scratch, "home-"));
    const ask = (...words) =>
      spawnSync(process.execPath, [support.firefoxProfilerProgram(), ...words], {
        encoding: "utf8",
        env: { ...process.env, HOME: home },
      }).stdout;
    try {
      ask("load", file);
      let threads = ask("thread", "list");
      for (const end = Date.now() + support.PATIENCE_MS; !threads.includes("t-0") && Date.now() < end; ) {
        await new Promise((done) => setTimeout(done, 200));
        threads = ask("thread", "list");
      }
      const [, pool] = threads.match(/(t-\d+) +NPU 0: PyTorch caching, never freed/) ?? assert.fail(threads);
      ask("thread", "select", pool);
      const tree = ask("thread", "samples-top-down");
      assert.match(tree, /leaky_training\.c:\d+ remember_loss/);
    } finally {
      ask("stop");
    }
  });

  describe("speedscope", () => {
    let browser;
    before(async () => (browser = await support.openBrowser()));
    after(async () => browser?.close());

    for (const [format, name] of [
      ["speedscope", "demo.speedscope.json"],
      ["folded", "demo.folded"],
      ["pprof", "demo.pb.gz"],
    ])
      test(`opens ${format}`, async () => {
        const file = support.exportTo(demo, format, name);
        const { page } = browser;
        await page.goto(pathToFileURL(support.speedscopePage()).href);
        await page.setInputFiles("input[type=file]", file, { timeout: support.PATIENCE_MS });
        // The list of functions is text; the flame chart is a drawing.
        await page.getByText("Sandwich").click({ timeout: support.PATIENCE_MS });
        // The line that leaks is in this function.
        await page.getByText("remember_loss").first().waitFor({ timeout: support.PATIENCE_MS });
      });
  });
});
