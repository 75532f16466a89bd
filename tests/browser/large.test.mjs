// The viewer on a recording of ten million events: a picture at once, true numbers in every view, little memory, and
// all of it again from the index.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show, settled } = support;
const MILLIONS = 10;
const MOST_MEBIBYTES = 1024;
/** Reading takes seconds; the machine may be busy with something else. */
const READING_MS = 240_000;

describe("ten million events", { timeout: 900_000 }, () => {
  let output, viewer, browser, page, units, analysis, pool, inAll, first;
  before(async () => {
    output = support.recordTraining("large", MILLIONS);
    units = await support.loadUnits();
    viewer = await support.startViewer(output);
    first = await firstPicture();
    [analysis] = support.analyze(output);
    pool = analysis.owners.pools.find((candidate) => candidate.pool === "PTA");
    inAll = analysis.summary.pools.find((candidate) => candidate.pool === "PTA");
    browser = await support.openBrowser();
    page = browser.page;
    page.setDefaultTimeout(READING_MS);
    await show(page, viewer.url, "");
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints.splice(0), []));

  const ask = async (question) => (await fetch(`${viewer.url}api/${question}`)).json();
  const until = async (question, isEnough) => {
    const deadline = Date.now() + READING_MS;
    for (;;) {
      const answer = await ask(question);
      if (isEnough(answer)) return answer;
      assert.ok(Date.now() < deadline, `${question} takes too long`);
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  const firstPicture = () => until("curve?width=500", (curve) => curve.max?.some((value) => value > 0));
  const figure = (name) => page.textContent(`[data-figure="${name}"]`);
  /** Blocks that are drawn one by one, and those that are a shade. */
  const blocksShown = async () => {
    const words = await page.$$eval('[data-figure="drawn"], [data-figure="small"]', (found) =>
      found.map((figure) => figure.textContent),
    );
    return words.map((text) => Number(text.replace(/\D/g, ""))).reduce((sum, blocks) => sum + blocks);
  };

  test("a coarse picture comes first, and says that it is one", () => {
    assert.equal(first.approximate, true);
    assert.ok(first.fraction < 1 && first.read_until < first.t1);
    const known = first.max.filter((value) => value !== null);
    assert.ok(known.length < first.max.length, "nothing is made up for what has not been read");
  });

  test("the leak is named with its line", async () => {
    const [leak] = analysis.leaks.leaks;
    const words = await page.textContent('.finding[data-kind="leak"]');
    assert.ok(words.includes("/data/train.py:65") && words.includes(units.bytes(leak.bytes)), words);
  });

  test("numbers are those of the analyses", async () => {
    await show(page, viewer.url, "view=timeline");
    assert.ok((await figure("cursor")).includes(units.bytes(pool.peak_bytes)));
    assert.ok((await support.colours(page, "main canvas")) > 5);
    const legend = await page.textContent(".legend");
    assert.match(legend, /used on the card .*other processes \(.*unexplained \(/, "the whole card is accounted for");
    await show(page, viewer.url, "view=owners");
    assert.equal(await figure("total"), units.bytes(pool.peak_bytes));
    await show(page, viewer.url, "view=flame&kind=leaked");
    assert.equal(await figure("total"), units.bytes(analysis.leaks.leaks[0].bytes));
    await show(page, viewer.url, "view=table&table=events");
    const ofOthers = await support.eventsOfPool(viewer, "HAL");
    assert.ok((await figure("total")).endsWith(`of ${units.count(analysis.summary.events - ofOthers)}`));
    assert.ok((await figure("csv-cut")).startsWith("csv has the first 1,000,000 of "), "what is cut is said");
    await show(page, viewer.url, "view=steps");
    const ends = analysis.leaks.growth.find((growth) => growth.pool === "PTA").step_ends;
    const cells = await page.$$eval("tbody tr:first-child td", (found) => found.map((cell) => cell.textContent));
    assert.deepEqual([cells[0], cells[3]], [String(ends[0].step), units.bytes(ends[0].used_bytes)]);
  });

  test("every view has something to show, from all to one", async () => {
    for (const view of ["timeline", "blocks", "flame", "owners", "steps", "pool"]) {
      await show(page, viewer.url, `view=${view}`);
      assert.ok((await support.colours(page, "main canvas")) > 1, view);
    }
    await show(page, viewer.url, "view=blocks");
    const canvas = page.locator("main canvas").first();
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    for (let turn = 0; turn < 8; turn += 1) {
      await page.mouse.wheel(0, -600);
      await settled(page);
    }
    assert.ok((await support.colours(page, "main canvas")) > 1);
    const { t0, t1 } = Object.fromEntries(new URLSearchParams(new URL(page.url()).hash.slice(1)));
    const { total } = await ask(`table/blocks?t0=${t0}&t1=${t1}&device=0&pool=PTA&limit=1`);
    assert.ok(total > 0 && total < inAll.allocations / 10, `${total} blocks in a small part of the recording`);
    assert.equal(await blocksShown(), total);
  });

  test("the map of blocks has every block of the pool", async () => {
    await show(page, viewer.url, "view=blocks");
    assert.equal(await blocksShown(), inAll.allocations);
    await show(page, viewer.url, "view=blocks&text=remember_loss");
    assert.equal(await blocksShown(), analysis.summary.steps, "one for each step");
  });

  test("the pool has the numbers of the analyses, at its peak, at the end of a step and of the recording", async () => {
    const ends = analysis.leaks.growth.find((growth) => growth.pool === "PTA").step_ends;
    const { step, used_bytes } = ends[Math.floor(ends.length / 2)];
    const [row] = (await ask(`steps?offset=${step - 1}&limit=1`)).rows;
    assert.equal(row.step, step);
    for (const [hash, used] of [
      ["view=pool", pool.peak_bytes],
      [`view=pool&t=${row.end}`, used_bytes],
      ["view=pool&t=99999999999999", inAll.end_used_bytes],
    ]) {
      await show(page, viewer.url, hash);
      assert.ok((await figure("in_use")).startsWith(units.bytes(used)), `${hash}: ${await figure("in_use")}`);
    }
  });

  test("filters count in steps, too", async () => {
    await show(page, viewer.url, "view=steps&text=remember_loss");
    const cells = await page.$$eval("tbody tr:first-child td", (found) => found.map((cell) => cell.textContent));
    const [leak] = analysis.leaks.leaks;
    assert.equal(cells[3], units.bytes(leak.bytes_per_step), "only the line that leaks counts");
  });

  test("one of many steps is chosen by its number", async () => {
    assert.ok(analysis.summary.steps > 200, `${analysis.summary.steps} steps`);
    const step = analysis.summary.steps - 1;
    await show(page, viewer.url, "view=blocks");
    await page.fill(".filters input[type=number]", String(step));
    await page.keyboard.press("Enter");
    await page.waitForFunction((chosen) => location.hash.includes(`step=${chosen}`), step);
    await show(page, viewer.url, `view=table&step=${step}`);
    assert.equal(await page.inputValue(".filters input[type=number]"), String(step));
  });

  test("all steps are drawn, and a bar leads to its own", async () => {
    await show(page, viewer.url, "view=steps");
    const { steps } = analysis.summary;
    assert.ok((await figure("steps_chart")).includes(`${units.count(steps)} steps`), await figure("steps_chart"));
    const box = await page.locator("main canvas").first().boundingBox();
    await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2);
    const heading = await page.textContent(".tooltip b");
    await page.mouse.click(box.x + box.width * 0.6, box.y + box.height / 2);
    await page.waitForFunction(() => location.hash.includes("offset="));
    await settled(page);
    const first = await page.textContent("tbody tr:first-child td");
    assert.ok(Number(first) > steps / 3 && heading.startsWith(`Steps ${first} to `), `${heading}, ${first}`);
  });

  test("two of many steps are compared by their numbers, and keys go from one to the next", async () => {
    const ends = analysis.leaks.growth.find((growth) => growth.pool === "PTA").step_ends;
    const [before_, after_] = [ends[3], ends.at(-2)];
    await show(page, viewer.url, "view=flame&kind=difference");
    const field = page.locator(".toolbar input[type=number]");
    const isAt = (address) => page.waitForFunction((part) => location.hash.includes(part), address);
    for (const [place, { step }] of [before_, after_].entries()) {
      const [{ end }] = (await ask(`steps?number=${step}&limit=1`)).rows;
      await field.nth(place).fill(String(step));
      await page.keyboard.press("Enter");
      await isAt(`t${place}=${end}`);
      await settled(page);
    }
    assert.equal(await figure("total"), units.bytesChange(after_.used_bytes - before_.used_bytes));
    assert.deepEqual(await field.evaluateAll((found) => found.map(({ value }) => Number(value))), [
      before_.step,
      after_.step,
    ]);
    const [row, next] = (await ask(`steps?number=${after_.step}&limit=2`)).rows;
    await show(page, viewer.url, `view=timeline&t=${row.end}`);
    await page.keyboard.press("]");
    await isAt(`t=${next.end}`);
    await settled(page);
    await page.keyboard.press("[");
    await isAt(`t=${row.end}`);
  });

  test("any row of a long table is one number away", async () => {
    await show(page, viewer.url, "view=table");
    await page.fill(".pager input", "1234567");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.includes("offset=1234500"));
    await settled(page);
    assert.ok((await figure("total")).startsWith("1,234,501–1,234,600 of "), await figure("total"));
  });

  test("the server stays small", () => {
    const status = readFileSync(`/proc/${viewer.pid}/status`, "utf8");
    const mebibytes = Number(/VmHWM:\s+(\d+)/.exec(status)[1]) / 1024;
    assert.ok(mebibytes < MOST_MEBIBYTES, `${mebibytes} MiB`);
  });

  test("opened again, everything comes from the index", async () => {
    const overview = async () => {
      await show(page, viewer.url, "");
      return page.textContent("main");
    };
    const before_ = await overview();
    const index = join(output, "viewer.index");
    const deadline = Date.now() + READING_MS;
    while (!existsSync(index)) {
      assert.ok(Date.now() < deadline, "the index is not written");
      await new Promise((done) => setTimeout(done, 50));
    }
    await viewer.stop();
    viewer = await support.startViewer(output);
    const started = Date.now();
    const curve = await firstPicture();
    assert.equal(curve.approximate, false, "nothing is read again");
    assert.ok(Date.now() - started < READING_MS / 10);
    assert.equal(await overview(), before_);
  });
});
