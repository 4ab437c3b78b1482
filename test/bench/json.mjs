/**
 * A hand-written proxy that parses each message, gives it its own id and serializes it again, without any check.
 * Arguments: stdio or http, then those of the backend.
 */
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';

const [mode, ...backend] = process.argv.slice(2);
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

/** Sends a message to the backend; calls back with the serialized reply, with '' at once for a notification. */
function forward(message, reply) {
  const { id } = message;
  if (id !== undefined) {
    last += 1;
    message.id = last;
    waiting.set(last, (answer) => {
      answer.id = id;
      reply(JSON.stringify(answer));
    });
  }
  child.stdin.write(`${JSON.stringify(message)}\n`);
  if (id === undefined) reply('');
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
