// The viewer on jobs that are running: the page follows a job that grows, starts another process and is killed.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show, settled } = support;
const MIB = 1024 * 1024;
const STEP = [`pool:${2 * MIB}`, `pool:${3 * MIB}`, "poolfree"];
const STEPS = (number) => Array.from({ length: number }, () => ["step", ...STEP, "endstep"]).flat();

describe("a job that is running", { timeout: 600_000 }, () => {
  let job, viewer, browser, page, units, process_;
  before(async () => {
    units = await support.loadUnits();
    job = support.startJob(
      "live",
      ...["init", "device:0", ...STEPS(2), "catch", "say:first", "wait"],
      ...[...STEPS(3), "say:second", "wait", "fork", "alloc:70000", "say:third", "sleep:600000"],
    );
    await job.hear("first");
    viewer = await support.startViewer("--live", String(job.launcher.pid));
    browser = await support.openBrowser();
    page = browser.page;
  });
  after(async () => {
    for (const id of processes()) kill(id, "SIGKILL");
    await browser?.close();
    await viewer?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints.splice(0), []));

  const known = new Set();
  const processes = () => [...known];
  const kill = (id, signal) => {
    try {
      process.kill(id, signal);
    } catch {
      // It has ended.
    }
  };
  const session = async () => {
    const answer = await (await fetch(`${viewer.url}api/session`)).json();
    answer.recordings.forEach(({ process_id }) => known.add(process_id));
    return answer;
  };

  test("what it holds is there at once, and marked as live", async () => {
    await show(page, viewer.url, "");
    [process_] = (await session()).recordings;
    await page.waitForSelector('.live[data-live="running"]');
    assert.equal(await page.textContent('[data-figure="now_PTA"] b'), units.bytes(4 * MIB));
    assert.equal(await page.textContent('.card [data-figure="end"] b'), units.bytes(4 * MIB));
    await page.keyboard.press("6");
    await settled(page);
    assert.equal(await page.locator("tbody tr").count(), 2);
  });

  test("what it does next appears by itself, in the view that is open", async () => {
    kill(process_.process_id, "SIGUSR1");
    await job.hear("second");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 5);
    const cells = await page.$$eval("tbody tr:last-child td", (found) => found.map((cell) => cell.textContent));
    assert.equal(cells[3], units.bytes(10 * MIB));
    await page.keyboard.press("2");
    await page.waitForSelector('[data-view="timeline"]');
    await settled(page);
    assert.ok((await page.textContent('[data-figure="cursor"]')).includes(units.bytes(13 * MIB)), "the newer peak");
    assert.match(page.url(), /view=timeline/);
    assert.doesNotMatch(page.url(), /t0=/, "the window goes on with the job");
  });

  test("a pause keeps the page as it is, and processes that the job starts join in", async () => {
    await page.click("text=Pause");
    await page.waitForSelector('.live[data-live="paused"]');
    kill(process_.process_id, "SIGUSR1");
    await job.hear("third");
    while ((await session()).recordings.length < 2) await new Promise((done) => setTimeout(done, 50));
    assert.ok(!(await page.textContent("nav.rail")).includes("Ranks"), "nothing new while it is paused");
    await page.click("text=Resume");
    await page.waitForSelector("nav.rail :text('Ranks')");
    await settled(page);
  });

  test("when it is killed, the page says so and has everything", async () => {
    await show(page, viewer.url, "");
    for (const id of processes()) kill(id, "SIGKILL");
    await job.ended;
    await page.waitForSelector('.live[data-live="cut_off"]');
    await page.waitForSelector("text=The job was killed");
    await settled(page);
    assert.equal((await session()).live, false);
    assert.equal(await page.textContent('.card [data-figure="end"] b'), units.bytes(10 * MIB));
    assert.equal(await page.locator(".live button").count(), 0, "there is nothing to pause any more");
  });
});
