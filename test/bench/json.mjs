/**
 * A hand-written proxy that parses each message, gives it its own id and serializes it again, without any check.
 * Arguments: json or floor, stdio or http, then those of the backend. `floor` also does what the audit log needs, and
 * nothing else: for each call a keyed digest of its arguments and two chained records, one write for all records of a
 * turn of the event loop. A message leaves when the write with its record is done.
 */
import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';

const [kind, mode, ...backend] = process.argv.slice(2);
const child = spawn(process.execPath, backend, { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
let last = 0;

/** Calls back with each message of a stream of lines. */
function readLines(stream, take) {
  let parts = [];
  stream.on('data', (chunk) => {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      take(JSON.parse(Buffer.concat([...parts, chunk.subarray(start, end)]).toString()));
      parts = [];
      start = end + 1;
    }
    if (start < chunk.length) parts.push(chunk.subarray(start));
  });
}

const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-floor-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const file = openSync(path.join(folder, 'records'), 'a');
let head = '0'.repeat(64);
let lines = [];
let sending = [];

/** Records one step of a call, and then runs `send`. */
function record(step, send) {
  if (kind !== 'floor') return send();
  const text = `{${step},"ts":${Date.now()},"prev":"${head}"`;
  head = hash('sha256', text);
  lines.push(`${text},"hash":"${head}"}\n`);
  sending.push(send);
  if (sending.length > 1) return;
  setImmediate(() => {
    writeSync(file, lines.join(''));
    const ready = sending;
    [lines, sending] = [[], []];
    for (const next of ready) next();
  });
}

/** Returns what both records of a call state. */
function factsOf({ method, params }) {
  if (kind !== 'floor') return '';
  const digest = hash('sha256', `key${JSON.stringify(params?.arguments)}`);
  return `"id":${last},"method":"${method}","tool":"${params?.name}","digest":"${digest}"`;
}

/** Sends a message to the backend; calls back with the serialized reply, with '' at once for a notification. */
function forward(message, reply) {
  const { id } = message;
  if (id === undefined) {
    child.stdin.write(`${JSON.stringify(message)}\n`);
    return reply('');
  }
  last += 1;
  message.id = last;
  const call = factsOf(message);
  waiting.set(last, (answer) => {
    answer.id = id;
    record(call, () => reply(JSON.stringify(answer)));
  });
  record(call, () => child.stdin.write(`${JSON.stringify(message)}\n`));
}

readLines(child.stdout, (answer) => {
  const reply = waiting.get(answer.id);
  waiting.delete(answer.id);
  reply?.(answer);
});

if (mode === 'stdio') {
  readLines(process.stdin, (message) =>
    forward(message, (reply) => {
      if (reply !== '') process.stdout.write(`${reply}\n`);
    }),
  );
} else {
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () =>
      forward(JSON.parse(Buffer.concat(parts).toString()), (reply) => {
        response.writeHead(reply === '' ? 202 : 200, {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(reply),
        });
        response.end(reply);
      }),
    );
  });
  server.listen(0, '127.0.0.1', () =>
    process.stderr.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`),
  );
  process.stdin.resume();
}
process.stdin.on('end', () => process.exit(0));
