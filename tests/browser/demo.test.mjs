// The viewer on the job of `make demo`: every view, and its numbers against those of `msmemscope analyze --json`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show, settled } = support;

describe("the job of make demo", { timeout: 600_000 }, () => {
  let demo, viewer, browser, page, units, analysis, pta;

  before(async () => {
    demo = support.recordDemo("demo");
    [analysis] = support.analyze(demo);
    pta = analysis.owners.pools.find((pool) => pool.pool === "PTA");
    units = await support.loadUnits();
    viewer = await support.startViewer(demo);
    browser = await support.openBrowser();
    page = browser.page;
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints.splice(0), []));

  const figure = (name) => page.textContent(`[data-figure="${name}"]`);
  const leak = () => analysis.leaks.leaks[0];

  test("the overview names the leak with its line, as text", async () => {
    await show(page, viewer.url, "");
    const sentence = await page.textContent('.finding[data-kind="leak"]');
    assert.ok(sentence.includes(units.bytes(leak().bytes)), sentence);
    assert.match(sentence, /examples\/leaky_training\.c:\d+/);
    assert.ok((await page.textContent(".card")).includes(units.bytes(pta.peak_bytes)));
    assert.equal(await page.getAttribute(".findings > li:first-child", "data-kind"), "leak", "the worst comes first");
    assert.ok((await support.colours(page, ".card canvas")) > 1, "the curve is drawn");
  });

  test("a first-time user finds the planted leak in three clicks", async () => {
    await show(page, viewer.url, "");
    let clicks = 0;
    const click = async (selector) => {
      await page.click(selector);
      await settled(page);
      clicks += 1;
    };
    await click('.finding[data-kind="leak"] a.button');
    if (!(await page.textContent("main")).includes("remember_loss")) await click("tbody tr.action");
    const evidence = await page.textContent("main");
    assert.ok(evidence.includes("remember_loss"), "the function that keeps the memory");
    const lines = readFileSync(join(support.root, "examples/leaky_training.c"), "utf8").split("\n");
    const places = await page.$$eval(".frames .file", (found) => found.map((place) => place.textContent));
    const shown = places
      .flatMap((place) => /leaky_training\.c:(\d+)$/.exec(place)?.[1] ?? [])
      .map((number) => lines[number - 1]);
    assert.ok(
      shown.some((line) => line.includes("history[step] = pool_allocate(")),
      "the line that asks for the memory",
    );
    assert.ok(clicks <= 3);
  });

  test("the timeline shows the peak and what holds it", async () => {
    const rows = () =>
      page.$$eval("aside tbody tr", (found) => found.map((row) => [...row.cells].map((cell) => cell.textContent)));
    // All blocks of this pool have one owner, which tells nothing: call sites do.
    await show(page, viewer.url, "view=timeline");
    assert.ok((await figure("cursor")).includes(units.bytes(pta.peak_bytes)));
    assert.ok((await rows()).some(([site]) => site.endsWith("remember_loss")), "the line that leaks has its own band");
    await show(page, viewer.url, "view=timeline&by=owner");
    assert.ok((await figure("cursor")).includes(units.bytes(pta.peak_bytes)));
    for (const { owner, bytes } of pta.at_peak)
      assert.deepEqual((await rows()).find((row) => row[0] === owner)?.[1], units.bytes(bytes), owner);
    await show(page, viewer.url, "view=timeline");
    assert.ok((await support.colours(page, "main canvas")) > 5);
    await page.mouse.move(700, 300);
    await page.waitForSelector(".tooltip");
  });

  test("the timeline opens on the time in which there is memory", async () => {
    await show(page, viewer.url, "view=timeline");
    const [recording] = await page.evaluate(async () => (await (await fetch("api/session")).json()).recordings);
    const active = recording.active_t1 - recording.active_t0;
    assert.ok(active > 0 && active < recording.t1 - recording.t0);
    const air = Math.ceil(active * 0.02);
    const first = Math.max(recording.t0, recording.active_t0 - air);
    const last = Math.min(recording.t1, recording.active_t1 + air);
    assert.equal(await page.textContent(".status b"), units.span(last - first));
  });

  test("keys move and zoom, the address follows, and back goes back", async () => {
    await show(page, viewer.url, "view=timeline");
    const window_ = () => new URL(page.url()).hash;
    await page.keyboard.press("w");
    await settled(page);
    const zoomed = new URLSearchParams(window_().slice(1));
    assert.ok(Number(zoomed.get("t1")) > Number(zoomed.get("t0")));
    await page.keyboard.press("a");
    await settled(page);
    assert.ok(Number(new URLSearchParams(window_().slice(1)).get("t0")) < Number(zoomed.get("t0")));
    await page.keyboard.press("r");
    await settled(page);
    assert.ok(!window_().includes("t0="));
    await page.keyboard.press("?");
    await page.waitForSelector("[role=dialog]");
    await page.keyboard.press("Escape");
    await page.waitForSelector("[role=dialog]", { state: "detached" });
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.type), "search");
    await page.keyboard.press("Escape");
    await page.keyboard.press("5");
    await page.waitForSelector('[data-view="owners"]');
    await page.goBack();
    await page.waitForSelector('[data-view="timeline"]');
    await settled(page);
  });

  test("wheel and drag zoom and move; a click sets the cursor of every view", async () => {
    await show(page, viewer.url, "view=timeline");
    const box = await page.locator("main canvas").first().boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 150);
    await page.mouse.wheel(0, -400);
    await page.waitForFunction(() => location.hash.includes("t0="));
    const before_ = new URLSearchParams(new URL(page.url()).hash.slice(1));
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2 + 120, box.y + 150, { steps: 4 });
    await page.mouse.up();
    const after_ = new URLSearchParams(new URL(page.url()).hash.slice(1));
    assert.ok(Number(after_.get("t0")) < Number(before_.get("t0")), "dragged to the right shows what was before");
    await page.mouse.click(box.x + box.width / 2, box.y + 150);
    await page.waitForFunction(() => /[#&]t=/.test(location.hash));
    const cursor = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("t");
    await page.keyboard.press("5");
    await page.waitForSelector('[data-view="owners"]');
    assert.equal(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("t"), cursor);
    await settled(page);
  });

  test("a copied address reproduces the view", async () => {
    const hash = `view=flame&kind=leaked&search=remember&pool=PTA&device=0`;
    await show(page, viewer.url, hash);
    const first = await page.textContent("main");
    const address = page.url();
    await page.goto("about:blank");
    await page.goto(address);
    await settled(page);
    assert.equal(await page.textContent("main"), first);
    assert.equal(await page.inputValue("input[type=search]"), "remember");
  });

  test("flame graphs have the memory of the analyses", async () => {
    await show(page, viewer.url, "view=flame&kind=peak");
    assert.equal(await figure("total"), units.bytes(pta.peak_bytes));
    assert.ok((await support.colours(page, "main canvas")) > 3);
    await show(page, viewer.url, "view=flame&kind=leaked");
    assert.equal(await figure("total"), units.bytes(leak().bytes));
    assert.ok((await page.textContent("main")).includes("remember_loss"));
    await show(page, viewer.url, "view=flame&kind=leaked&invert=1");
    assert.equal(await figure("total"), units.bytes(leak().bytes));
    const ends = analysis.leaks.growth.find((growth) => growth.pool === "PTA").step_ends;
    await show(page, viewer.url, "view=steps");
    await page.click("text=Compare first and last");
    await settled(page);
    const change = ends.at(-1).used_bytes - ends[0].used_bytes;
    assert.equal(await figure("total"), units.bytesChange(change));
    await show(page, viewer.url, "view=flame");
    await page.click("text=Difference");
    await page.waitForFunction(() => location.hash.includes("kind=difference"));
    await settled(page);
    assert.equal(await figure("total"), units.bytesChange(change), "of the first and the last step unless others are chosen");
  });

  test("owners are those of the peak", async () => {
    await show(page, viewer.url, "view=owners");
    assert.equal(await figure("total"), units.bytes(pta.peak_bytes));
    for (const { owner, bytes } of pta.at_peak) {
      const cells = await page.$$eval(`tr[data-owner="${owner}"] td`, (found) => found.map((cell) => cell.textContent));
      assert.equal(cells[1], units.bytes(bytes), owner);
    }
    assert.ok((await support.colours(page, "main canvas")) > 1);
  });

  test("steps grow as the analysis says", async () => {
    await show(page, viewer.url, "view=steps");
    const ends = analysis.leaks.growth.find((growth) => growth.pool === "PTA").step_ends;
    const rows = await page.$$eval("tbody tr", (found) =>
      found.map((row) => [...row.cells].map((cell) => cell.textContent)),
    );
    assert.equal(rows.length, ends.length);
    ends.forEach((end, index) => {
      assert.equal(rows[index][0], String(end.step));
      assert.equal(rows[index][3], units.bytes(end.used_bytes), `step ${end.step}`);
    });
    assert.ok(rows.at(-1)[6].includes("leaky_training.c"), "what grew");
  });

  test("blocks are drawn, chosen and explained", async () => {
    await show(page, viewer.url, "view=table&table=blocks&alive=leaked");
    const rows = page.locator("tbody tr");
    assert.equal(await rows.count(), leak().count);
    assert.ok((await figure("total")).includes(units.bytes(leak().bytes)));
    await rows.first().click();
    await page.waitForSelector("aside .facts");
    await settled(page);
    const life = await page.textContent("aside");
    assert.ok(life.includes("remember_loss") && life.includes(units.bytes(leak().bytes / leak().count)), life);
    await page.click("text=Show in the map");
    await page.waitForSelector('[data-view="blocks"]');
    await settled(page);
    assert.ok((await support.colours(page, "main canvas")) > 2);
  });

  test("sources are shown where the files are", async () => {
    await show(page, viewer.url, "view=flame&kind=leaked");
    await page.locator(".frames button.link", { hasText: "leaky_training.c" }).first().click();
    const code = await page.textContent(".code .here");
    const number = Number(/^\d+/.exec(code)[0]);
    const lines = readFileSync(join(support.root, "examples/leaky_training.c"), "utf8").split("\n");
    assert.equal(code.slice(String(number).length), lines[number - 1]);
  });

  test("the pool at the peak", async () => {
    await show(page, viewer.url, "view=pool");
    assert.ok((await figure("in_use")).includes(units.bytes(pta.peak_bytes)));
    const pool = analysis.fragmentation.pools.find((candidate) => candidate.pool === "PTA");
    assert.ok((await figure("reserved")).includes(units.bytes(pool.at_peak_used.reserved_bytes)));
    await show(page, viewer.url, `view=pool&t=99999999999999`);
    assert.ok((await figure("in_use")).includes(units.bytes(pool.at_end.used_bytes)));
    assert.ok((await figure("pool_largest_gap")).includes(units.bytes(pool.at_end.gaps.largest_gap_bytes)));
  });

  test("fragmentation is drawn for the window of all views", async () => {
    await show(page, viewer.url, "view=pool");
    const before_ = await page.textContent(".status b");
    const box = await page.locator("main canvas").first().boundingBox();
    await page.mouse.move(box.x + box.width * 0.8, box.y + box.height / 2);
    await page.mouse.wheel(0, -400);
    await page.waitForFunction(() => location.hash.includes("t0="));
    await settled(page);
    assert.notEqual(await page.textContent(".status b"), before_);
    assert.ok((await support.colours(page, "main canvas")) > 3);
  });

  test("a filter fades what it does not mean in the pool, and makes no gaps", async () => {
    const end = "view=pool&t=99999999999999";
    await show(page, viewer.url, end);
    const [used, gaps] = [await figure("in_use"), await figure("pool_gaps")];
    await show(page, viewer.url, `${end}&text=remember_loss`);
    assert.deepEqual([await figure("in_use"), await figure("pool_gaps")], [used, gaps]);
    const kept = 8 * 3 * 1024 * 1024;
    assert.ok((await figure("pool_meant")).includes(units.bytes(kept)), "one tensor of 3 MiB for each of 8 steps");
  });

  test("tables page, sort, filter and become csv", async () => {
    await show(page, viewer.url, "view=table&table=blocks");
    assert.match(await figure("total"), /of 110 /);
    await page.click("th button:has-text('Size')");
    await settled(page);
    const sizes = await page.$$eval("tbody tr td:nth-child(3)", (cells) =>
      cells.map((cell) => Number(cell.title.replace(" B", ""))),
    );
    assert.deepEqual(
      sizes,
      [...sizes].sort((left, right) => right - left),
    );
    await page.click("text=Next");
    await settled(page);
    assert.match(await figure("total"), /^101–110/);
    await page.fill("input[type=search]", "pool_ALLOCATE");
    await page.waitForFunction(() => location.hash.includes("pool_ALLOCATE"));
    await settled(page);
    const total = await figure("total");
    await page.click("text=Copy as csv");
    await page.waitForSelector("text=Copied");
    const csv = (await page.evaluate(() => navigator.clipboard.readText())).trim().split("\n");
    assert.ok(total.includes(`of ${csv.length - 1}`), `${total}, ${csv.length} lines`);
    await show(page, viewer.url, "view=table&table=events");
    const ofOthers = await support.eventsOfPool(viewer, "HAL");
    assert.ok((await figure("total")).endsWith(`of ${units.count(analysis.summary.events - ofOthers)}`));
  });

  test("views without anything to show say why", async () => {
    await show(page, viewer.url, "view=calls");
    assert.match(await page.textContent("main"), /No Python trace was recorded/);
    await show(page, viewer.url, "view=watch");
    assert.match(await page.textContent("main"), /Nothing was watched/);
    await show(page, viewer.url, "view=timeline&text=nothing%20has%20this%20name");
    assert.match(await page.textContent("aside"), /Nothing matches the filter/);
  });

  test("curves stand beside the findings where there is room, and nothing is cut off in narrow windows", async () => {
    await show(page, viewer.url, "");
    const left = async (selector) => (await page.locator(selector).first().boundingBox()).x;
    assert.ok((await left(".card")) > (await left(".finding .actions")));
    try {
      await page.setViewportSize({ width: 400, height: 800 });
      for (const view of ["overview", "timeline", "blocks", "flame", "owners", "steps", "pool", "calls", "watch", "table"]) {
        await show(page, viewer.url, `view=${view}`);
        const beyond = await page.evaluate(() => {
          const main = document.querySelector("main");
          return Math.max(document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth);
        });
        assert.ok(beyond <= 0, `${view} reaches ${beyond} pixels beyond the window`);
      }
    } finally {
      await page.setViewportSize({ width: 1440, height: 900 });
    }
  });

  test("Chinese and dark, and both again after a reload", async () => {
    await show(page, viewer.url, "");
    await page.click("text=中文");
    await page.click("text=深色");
    await page.reload();
    await settled(page);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    const words = await page.textContent("body");
    assert.ok(words.includes("泄漏") && words.includes("时间线"));
    const sentences = await page.$$eval(".finding .sentence", (found) => found.map((sentence) => sentence.textContent));
    for (const number of [leak().bytes_per_step, leak().bytes])
      assert.ok(sentences[0].includes(units.bytes(number)), "no number is lost in Chinese");
    const peak = sentences.find((sentence) => sentence.includes(units.bytes(pta.peak_bytes)) && sentence.includes("峰值"));
    assert.match(peak, /examples\/leaky_training\.c:\d+/);
    await page.click("text=English");
    await page.click("text=Light");
  });

  test("while a recording is read the page says so, and refines itself", async () => {
    let asked = 0;
    await page.route("**/api/session", async (route) => {
      const response = await route.fetch();
      const session = await response.json();
      asked += 1;
      if (asked < 4) {
        Object.assign(session, { complete: false });
        Object.assign(session.recordings[0], { state: "reading", fraction: 0.25 * asked });
      }
      await route.fulfill({ response, json: session });
    });
    await page.goto("about:blank");
    await page.goto(`${viewer.url}#view=timeline`);
    await page.waitForSelector(".notice:has-text('Reading the recording')");
    await page.waitForSelector("[role=progressbar]");
    await settled(page);
    assert.ok(asked >= 4);
    assert.equal(await page.locator(".notice").count(), 0);
    await page.unroute("**/api/session");
  });

  test("a server that is gone is named, with what to do", async () => {
    await page.route("**/api/session", (route) => route.abort());
    await page.goto("about:blank");
    await page.goto(`${viewer.url}#view=timeline`);
    await page.waitForSelector("text=does not answer any more");
    await page.unroute("**/api/session");
    await settled(page);
    browser.complaints.splice(0);
  });
});

describe("the ranks of a job", { timeout: 600_000 }, () => {
  const MIB = 1024 * 1024;
  let viewer, browser, page, units;
  before(async () => {
    units = await support.loadUnits();
    const step = (kept) => ["step", `pool:${10 * MIB}`, "poolfree", `pool:${kept}`, "endstep"];
    const outputs = [0, 1, 2, 3].map((rank) => {
      const kept = rank === 2 ? 6 * MIB : MIB;
      const words = ["init", "device:0", ...step(kept), ...step(kept), ...step(kept), "fini"];
      return support.recordRank(`matrix${rank}`, rank, 4, ...words);
    });
    viewer = await support.startViewer(...outputs);
    browser = await support.openBrowser();
    page = browser.page;
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });

  test("the one that differs stands out, with its numbers, and leads to its timeline", async () => {
    await show(page, viewer.url, "view=ranks");
    const words = (selector) => page.$$eval(selector, (found) => found.map((cell) => cell.textContent.trim()));
    const usual = units.bytes(12 * MIB);
    const peaks = await words(".matrix tbody tr:first-child td");
    assert.deepEqual(peaks, [usual, usual, `▲ ${units.bytes(22 * MIB)}`, usual]);
    const outliers = await page.$$eval(".matrix td.outlier button", (found) => found.map((cell) => cell.ariaLabel));
    assert.ok(outliers.length > 0 && outliers.every((label) => label.startsWith("Rank 2 ")), outliers.join("\n"));
    const row = await page.textContent("table:not(.matrix) tbody tr:nth-child(3)");
    assert.ok(row.includes("Peak: 1.83 times the median"), row);
    await page.click(".matrix tbody tr:first-child td.outlier button");
    await page.waitForSelector('[data-view="timeline"]');
    await settled(page);
    assert.match(page.url(), /r=2/);
    assert.deepEqual(browser.complaints, []);
  });
});

describe("several recordings", { timeout: 600_000 }, () => {
  let viewer, browser;
  before(async () => {
    const outputs = [support.recordDemo("rank0"), support.recordDemo("rank1")];
    viewer = await support.startViewer(...outputs);
    browser = await support.openBrowser({ locale: "zh-CN", colorScheme: "dark" });
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });

  test("ranks are beside each other, and differences of runs are drawn", async () => {
    const { page } = browser;
    const units = await support.loadUnits();
    await show(page, viewer.url, "view=ranks");
    const rows = await page.$$eval("table:not(.matrix) tbody tr", (found) => found.map((row) => row.textContent));
    assert.equal(rows.filter((row) => row.includes(units.bytes(61 * 1024 * 1024))).length, 2, rows.join("\n"));
    assert.ok((await page.textContent("nav.rail")).includes("各卡"), "the browser's language counts at first");
    await page.locator("table:not(.matrix) tbody tr").nth(1).click();
    await page.waitForSelector('[data-view="timeline"]');
    assert.match(page.url(), /r=1/);
    await show(page, viewer.url, "view=flame&kind=difference&r2=1");
    await settled(page);
    assert.deepEqual(browser.complaints, []);
  });
});
