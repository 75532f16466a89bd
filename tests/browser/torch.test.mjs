// The viewer on a recording of the real torch_npu that has something for every view, with hostile names in all of them.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show, settled } = support;
const skip = support.torchPython() ? false : "torch_npu is not installed (make torch-venv)";
/** As the page shows it: directions of writing do not turn, tags are text. */
const SHOWN = "<img src=x onerror=alert(1)>‹202E›live‹2066› & co";
const VIEWS = [
  "overview",
  "timeline",
  "blocks",
  "flame",
  "owners",
  "steps",
  "ranks",
  "pool",
  "calls",
  "watch",
  "table",
];

describe("a job on torch_npu", { timeout: 900_000, skip }, () => {
  let output, viewer, browser, page, units, analysis;
  before(async () => {
    output = support.recordTorch("torch");
    [analysis] = support.analyze(output);
    units = await support.loadUnits();
    viewer = await support.startViewer(output);
    browser = await support.openBrowser();
    page = browser.page;
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints.splice(0), []));

  const isHarmless = async () => {
    assert.equal(await page.locator("img, script:not([src])").count(), 0, "nothing of a name became an element");
    const content = await page.evaluate(() => document.documentElement.outerHTML);
    assert.doesNotMatch(content, /[\u202a-\u202e\u2066-\u2069\u0000-\u0008]/, "nothing turns the direction of writing");
  };

  test("findings: out of memory, the change and the leak", async () => {
    await show(page, viewer.url, "");
    const kinds = await page.$$eval(".finding", (found) => found.map((finding) => finding.dataset.kind));
    for (const kind of ["out_of_memory", "watch", "leak"]) assert.ok(kinds.includes(kind), kinds.join());
    const leak = await page.textContent('.finding[data-kind="leak"]');
    assert.ok(leak.includes(units.bytes(analysis.leaks.leaks[0].bytes)) && leak.includes(`${SHOWN}.py:`), leak);
    await isHarmless();
  });

  for (const view of VIEWS) {
    test(`hostile names are text in ${view}`, async () => {
      await show(page, viewer.url, `view=${view}`);
      await isHarmless();
      const canvas = page.locator("main canvas").first();
      if ((await canvas.count()) > 0) {
        const box = await canvas.boundingBox();
        for (const share of [0.2, 0.5, 0.8])
          await page.mouse.move(box.x + box.width * share, box.y + Math.min(box.height, 300) * share);
        await page.mouse.click(box.x + box.width * 0.7, box.y + Math.min(box.height, 300) * 0.7);
        await settled(page);
        await isHarmless();
      }
    });
  }

  test("the owner with the hostile label holds what it holds, and can be filtered by", async () => {
    await show(page, viewer.url, "view=owners&pool=PTA");
    const pool = analysis.owners.pools.find((candidate) => candidate.pool === "PTA");
    const rows = await page.$$eval("tr[data-owner]", (found) =>
      found.map((row) => [row.dataset.owner, row.cells[1].textContent]),
    );
    const expected = pool.at_peak.find(({ owner }) => owner.includes("<img"));
    // The analyses spell out what would steer a terminal, before the page does.
    assert.ok(expected.owner.startsWith("PTA@ops@aten@<img") && !/[\u202e\u2066]/.test(expected.owner), expected.owner);
    assert.deepEqual(
      rows.find(([owner]) => owner.includes("<img")),
      [expected.owner, units.bytes(expected.bytes)],
    );
    await page.click(`tr[data-owner=${JSON.stringify(expected.owner)}] button.link`);
    await settled(page);
    await page.keyboard.press("2");
    await page.waitForSelector('[data-view="timeline"]');
    await settled(page);
    assert.ok(
      (await page.textContent('[data-figure="cursor"]')).includes(units.bytes(expected.bytes)),
      "only this owner counts",
    );
  });

  test("the call chart finds functions", async () => {
    await show(page, viewer.url, "view=calls");
    // Only the last step was traced, which is a narrow line in the whole recording.
    await page.click("text=Zoom to the calls");
    await page.waitForFunction(() => location.hash.includes("t0="));
    await settled(page);
    assert.equal(await page.locator("text=Zoom to the calls").count(), 0, "there they are");
    assert.ok((await support.colours(page, "main canvas")) > 10);
    await page.fill("input[type=search]", "onerror");
    await page.waitForSelector("text=/functions match/");
    await settled(page);
  });

  test("the undeclared change is shown with its line", async () => {
    await show(page, viewer.url, "view=watch");
    const words = await page.textContent("main");
    assert.ok(words.includes(SHOWN) && /every_view\.py:\d+/.test(words), words);
  });

  test("why the request did not fit", async () => {
    await show(page, viewer.url, "");
    await page.click('.finding[data-kind="out_of_memory"] a.button');
    await settled(page);
    await isHarmless();
    const reason = async () => page.textContent(".notice.error");
    assert.match(await reason(), /Why did this request not fit\?.*The request alone, 1\.0 TiB, is larger than the whole card/s);
    // Before the failure, too: at the peak, where the view opens.
    await show(page, viewer.url, "view=pool&pool=PTA");
    assert.match(await reason(), /every_view\.py:\d+ main/);
  });

  /** How often each name is among the events of a kind that the tables have, and from which threads. */
  const recorded = async (kind, phase) => {
    const [counts, threads] = [{}, new Set()];
    for (let offset = 0, total = 1; offset < total; offset += 500) {
      const page_ = await (
        await fetch(`${viewer.url}api/table/events?kind=${kind}&limit=500&offset=${offset}`)
      ).json();
      ({ total } = page_);
      for (const row of page_.rows) {
        const event = Object.fromEntries(page_.columns.map((column, index) => [column, row[index]]));
        if (event.detail !== phase) continue;
        counts[event.name] = (counts[event.name] ?? 0) + 1;
        threads.add(event.thread);
      }
    }
    return { counts, threads };
  };

  test("Perfetto shows ranges, operators, kernels and threads", { skip: support.withoutPerfetto }, async () => {
    const file = support.exportTo(output, "perfetto", "torch.perfetto-trace");
    const count = "select s.name as name, count(*) as count from slice s";
    const [ranges, operators, kernels, launches, threads, complaints] = support.askPerfetto(
      file,
      `${count} join track t on s.track_id = t.id where t.name = 'mstx ranges' group by 1`,
      `${count} join thread_track t on s.track_id = t.id where s.name glob 'torch._ops.*' and s.dur > 0 group by 1`,
      `${count} join track t on s.track_id = t.id where t.name glob 'NPU 0: stream *' group by 1`,
      `${count} join thread_track t on s.track_id = t.id where s.name glob 'launch *' and s.dur = 0 group by 1`,
      `select distinct tid from slice s join thread_track t on s.track_id = t.id join thread using (utid)
       where s.name glob 'torch._ops.*' order by 1`,
      "select name, value from stats where severity != 'info' and value > 0",
    );
    assert.deepEqual(complaints, []);
    const byName = (rows) => Object.fromEntries(rows.map((row) => [row.name, row.count]));
    const [range, operator, kernel, launch] = await Promise.all([
      recorded("range", "start"),
      recorded("operator", "start"),
      recorded("kernel", "start"),
      recorded("kernel", "launch"),
    ]);
    assert.ok(Object.values(range.counts).includes(6), "one for each step");
    for (const some of [operator, kernel, launch]) assert.ok(Object.keys(some.counts).length > 10);
    assert.deepEqual(byName(ranges), range.counts);
    assert.deepEqual(byName(operators), operator.counts);
    assert.deepEqual(byName(kernels), kernel.counts);
    const launched = Object.entries(launch.counts).map(([name, times]) => [`launch ${name}`, times]);
    assert.deepEqual(byName(launches), Object.fromEntries(launched));
    assert.deepEqual(
      threads.map((thread) => thread.tid),
      [...operator.threads].sort((one, other) => one - other),
    );
    assert.ok(threads.length > 1, "the program's thread and autograd's");
  });

  test("Python and native frames are in one stack", async () => {
    await show(page, viewer.url, "view=table&table=blocks&alive=leaked&pool=PTA");
    await page.locator("tbody tr").first().click();
    await page.waitForSelector("aside .frames");
    await settled(page);
    const life = await page.textContent("aside");
    assert.ok(life.includes("train") && life.includes("python"), life);
    await isHarmless();
  });
});
