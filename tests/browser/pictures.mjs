// Takes the pictures of the viewer that README and docs show: node tests/browser/pictures.mjs <demo> <training>
// [<running>], where <demo> is what `make demo` recorded, and <training> a recording of `examples/gpt.py --leak` on the
// stand-in device with ASCEND_LAUNCH_BLOCKING=1 and `--analysis=leaks,decompose --events=alloc,free,launch`, best made
// from copies below /tmp, whose paths are nobody's. <running> is the number of a process that does the same with
// `--steps=1000` and has done so for some seconds: the picture of a running job is taken only with it. Look at each
// picture before it is committed.
import { join } from "node:path";
import { openBrowser, reportOf, root, settled, show, startViewer } from "./support.mjs";

const [demo, training, running] = process.argv.slice(2);
if (!training) throw new Error("usage: node tests/browser/pictures.mjs <demo> <training> [<running>]");
const images = join(root, "docs/images");

/** One picture, after what is done to the page. */
async function picture(name, { url, hash = "", size = [1200, 765], colorScheme = "light", prepare = settled }) {
  const browser = await openBrowser({ colorScheme });
  const { page } = browser;
  await page.setViewportSize({ width: size[0], height: size[1] });
  await show(page, url, hash);
  await prepare(page);
  await settled(page);
  await page.screenshot({ path: join(images, name) });
  await browser.close();
  if (browser.complaints.length > 0) throw new Error(`${name}: ${browser.complaints.join("; ")}`);
}

/** The window of a step of the training, and its middle, in time of the recording. */
async function stepOf(viewer, number) {
  const answer = await (await fetch(`${viewer.url}api/steps?limit=100`)).json();
  const { start, end } = answer.rows.find(({ step }) => step === number);
  const margin = Math.round((end - start) / 20);
  return { t0: Math.max(0, start - margin), t1: end + margin, t: Math.round((start + end) / 2) };
}

/** A block that the demo leaks, seen from the middle of the time in which its pool changes. */
async function leakedBlock(viewer) {
  const answer = await (await fetch(`${viewer.url}api/table/blocks?alive=leaked&limit=2`)).json();
  const { active_t0, active_t1 } = (await (await fetch(`${viewer.url}api/session`)).json()).recordings[0];
  return { block: answer.rows[1][0], t: Math.round((active_t0 + 2 * active_t1) / 3) };
}

const viewers = await Promise.all([
  startViewer(demo),
  startViewer(training),
  ...(running ? [startViewer("--live", running)] : []),
]);
const [ofDemo, ofTraining, ofRunning] = viewers;
try {
  await picture("viewer-overview.png", { url: ofDemo.url });
  const leaked = await leakedBlock(ofDemo);
  await picture("viewer-blocks.png", { url: ofDemo.url, hash: `view=blocks&block=${leaked.block}&t=${leaked.t}` });
  const { t0, t1, t } = await stepOf(ofTraining, 6);
  await picture("viewer-timeline.png", { url: ofTraining.url, hash: `view=timeline&by=owner&t0=${t0}&t1=${t1}&t=${t}` });
  await picture("viewer-flame.png", { url: ofTraining.url, hash: "view=flame", size: [1200, 720], colorScheme: "dark" });
  if (ofRunning)
    await picture("viewer-live.png", { url: ofRunning.url, hash: "view=timeline&by=owner" });
  await picture("report.png", { url: `file://${reportOf(demo, "report.html")}`, size: [900, 700] });
} finally {
  await Promise.all(viewers.map((viewer) => viewer.stop()));
}
