// The page of `msmemscope report`: opened from disk, without any server, and without JavaScript.
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { after, afterEach, before, describe, test } from "node:test";
import * as support from "./support.mjs";

const { show } = support;

describe("a report", { timeout: 600_000 }, () => {
  let analysis, url, browser, page, units, pta, requests;

  before(async () => {
    const demo = support.recordDemo("for-report");
    [analysis] = support.analyze(demo);
    pta = analysis.owners.pools.find((pool) => pool.pool === "PTA");
    const file = support.reportOf(demo, "report.html");
    assert.ok(statSync(file).size < 5_000_000);
    url = `file://${file}`;
    units = await support.loadUnits();
    browser = await support.openBrowser();
    page = browser.page;
    requests = [];
    page.on("request", (request) => requests.push(request.url()));
  });
  after(() => browser?.close());
  afterEach(() => {
    assert.deepEqual(browser.complaints.splice(0), []);
    assert.deepEqual(
      requests.splice(0).filter((address) => !address.startsWith(url) && !/^(about|data|blob):/.test(address)),
      [],
      "nothing but the file itself is loaded",
    );
  });

  test("it begins with the answer and shows the curve", async () => {
    await show(page, url, "");
    const leak = analysis.leaks.leaks[0];
    assert.match(await page.textContent(".finding .sentence"), /^Leak: .*leaky_training\.c:\d+/);
    assert.match(await page.textContent(".finding .advice"), /^What to do:/);
    assert.equal(await page.locator("text=/^Leak: /").count(), 1, "told once");
    const finding = await page.textContent('.finding[data-kind="leak"]');
    assert.ok(finding.includes(units.bytes(leak.bytes)) && /leaky_training\.c:\d+/.test(finding), finding);
    assert.ok((await support.colours(page, ".card canvas")) > 1, "the curve is drawn");
  });

  test("it has the views that it can answer for, and they say the peak", async () => {
    await show(page, url, "");
    const views = await page.$$eval("nav.rail a", (links) =>
      links.map((link) => link.textContent.replace(/^[0-9·]/, "")),
    );
    assert.deepEqual(views, ["Overview", "Timeline", "Flame graphs", "Owners", "Steps", "Pool"]);
    for (const view of ["timeline", "flame", "owners"]) {
      await show(page, url, `view=${view}`);
      assert.ok((await page.textContent("main")).includes(units.bytes(pta.peak_bytes)), view);
      assert.ok((await support.colours(page, "main canvas")) > 2, view);
    }
    for (const view of ["steps", "pool"]) {
      await show(page, url, `view=${view}`);
      assert.ok((await support.colours(page, "main canvas")) > 2, view);
      assert.equal(await page.locator(".notice.error, .empty").count(), 0, view);
    }
  });

  test("evidence of the leak is one click away", async () => {
    await show(page, url, "");
    await page.click('.finding[data-kind="leak"] a.button');
    await support.settled(page);
    assert.ok((await page.textContent("main")).includes("remember_loss"));
    const kinds = await page.$$eval(".segmented button", (buttons) => buttons.map((button) => button.textContent));
    assert.equal(kinds.length, 2, "the peak and the leaks");
    await page.click("text=Invert");
    await support.settled(page);
    assert.equal(await page.locator(".notice.error").count(), 0);
  });

  test("moving, zooming and clicking need no server", async () => {
    await show(page, url, "view=timeline");
    for (const key of ["w", "a", "d", "s", "r", "p"]) await page.keyboard.press(key);
    const box = await page.locator("main canvas").first().boundingBox();
    await page.mouse.click(box.x + box.width / 3, box.y + 150);
    await support.settled(page);
    assert.match(await page.textContent("aside h3"), /At the peak/, "what is known is said for its own moment");
    for (const title of ["Call site", "Size", "Pool"]) {
      await page.click(`.toolbar .segmented button:has-text("${title}") >> nth=0`);
      await support.settled(page);
      assert.equal(await page.locator(".notice.error").count(), 0, title);
    }
    await show(page, url, "view=table");
    await support.settled(page);
  });
});

test("without JavaScript findings are text", { timeout: 600_000 }, async () => {
  const file = support.reportOf(support.recordDemo("for-report"), "plain.html");
  const browser = await support.openBrowser({ javaScriptEnabled: false });
  try {
    await browser.page.goto(`file://${file}`);
    const text = await browser.page.locator("main.document").innerText();
    assert.match(text, /Leak: .*leaky_training\.c:\d+/);
    assert.match(text, /What holds memory at the peak/);
    assert.ok(await browser.page.locator(".finding.error").first().isVisible());
    assert.deepEqual(browser.complaints, []);
  } finally {
    await browser.close();
  }
});
