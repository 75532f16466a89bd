// The viewer on the summaries of many ranks: who differs and why, without opening recordings, or without having them.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show, settled } = support;
const LEAKING = 5;

describe("the summaries of many ranks", { timeout: 600_000 }, () => {
  let viewer, browser, page;
  before(async () => {
    const job = support.recordFleet("fleet", 60, 8, LEAKING);
    viewer = await support.startViewer(job);
    browser = await support.openBrowser();
    page = browser.page;
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints.splice(0), []));

  const states = () =>
    page.evaluate(async () => {
      const { recordings } = await (await fetch("api/session")).json();
      return recordings.map(({ state }) => state);
    });

  test("the page opens on the ranks and names the one that differs, with its line", async () => {
    await show(page, viewer.url, "");
    await page.waitForSelector('[data-view="ranks"] .rank-field');
    const words = await page.textContent(".job-sentences");
    assert.match(words, /Outlier: rank 5 .*grows by 1\.0 MiB with every step.*train\.py:21 remember/);
    assert.equal(await page.locator(".rank-field button").count(), 60);
    const outliers = await page.$$eval(".rank-field .outlier button", (found) => found.map((cell) => cell.ariaLabel));
    assert.equal(outliers.length, 1);
    assert.ok(outliers[0].startsWith(`Rank ${LEAKING} `), outliers[0]);
    const reason = page.locator(`table[aria-label="Ranks"] tbody tr:nth-child(${LEAKING + 1}) td.reason`);
    assert.match(await reason.textContent(), /Peak: 2\.09 times the median/);
    assert.match(await reason.getAttribute("title"), /^Outlier: rank 5/);
    assert.deepEqual(new Set(await states()), new Set(["waiting"]), "nothing is opened for that");
  });

  test("other figures are shown by the same squares", async () => {
    await show(page, viewer.url, "view=ranks");
    await page.click("text=Growth per step");
    assert.ok((await page.getAttribute(".rank-field .outlier button", "aria-label")).includes("+1.0 MiB"));
  });

  test("long names of recordings leave room for what can be pressed", async () => {
    try {
      await page.setViewportSize({ width: 900, height: 800 });
      await show(page, viewer.url, "view=ranks");
      const button = await page.locator(".bar button").last().boundingBox();
      assert.ok(button.x + button.width <= 900, `the last button ends at ${button.x + button.width}`);
    } finally {
      await page.setViewportSize({ width: 1440, height: 900 });
    }
  });

  test("the overview says the same, and leads there", async () => {
    await show(page, viewer.url, "view=overview");
    assert.match(await page.textContent(".headline"), /Outlier: rank 5/);
    assert.equal(await page.locator(".card").count(), 1);
    await page.click("text=Compare all ranks");
    await page.waitForSelector('[data-view="ranks"]');
    assert.deepEqual(new Set(await states()), new Set(["waiting"]));
  });

  test("a click opens the recording of that rank and of no other", async () => {
    await show(page, viewer.url, "view=ranks");
    await page.click(".rank-field .outlier button");
    await page.waitForSelector('[data-view="timeline"] canvas');
    await settled(page);
    assert.ok((await support.colours(page, "main canvas")) > 3, "the curve is drawn");
    const after_ = await states();
    assert.equal(after_[LEAKING], "ready");
    assert.equal(after_.filter((state) => state === "waiting").length, 59);
    await show(page, viewer.url, `view=flame&kind=leaked&r=${LEAKING}`);
    assert.ok((await page.textContent("main")).includes("remember"));
  });
});

describe("summaries without recordings", { timeout: 600_000 }, () => {
  let viewer, browser;
  before(async () => {
    const job = support.recordFleet("alone", 12, 8, LEAKING);
    viewer = await support.startViewer(support.summariesOf(job, "collected"));
    browser = await support.openBrowser();
  });
  after(async () => {
    await browser?.close();
    await viewer?.stop();
  });

  test("the matrix has its numbers, and other views say what is missing", async () => {
    const { page } = browser;
    await show(page, viewer.url, "");
    await page.waitForSelector('[data-view="ranks"] .matrix');
    assert.equal(await page.locator(".matrix thead th[scope=col]").count(), 12);
    const peaks = await page.$$eval(".matrix tbody tr:first-child td", (found) => found.map((cell) => cell.textContent));
    assert.ok(peaks[LEAKING].startsWith("▲ "), peaks.join());
    const titles = await page.$$eval(".matrix tbody th", (found) => found.map((cell) => cell.textContent));
    assert.deepEqual(titles.slice(0, 2), ["Peak", "Growth per step"]);
    await page.click(".matrix td.outlier button");
    await page.waitForSelector("text=Only the summary of this rank is here");
    await settled(page);
    assert.deepEqual(browser.complaints, []);
  });
});
