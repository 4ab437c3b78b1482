/** Copies bytes between a client and the backend. Arguments: stdio or http, then those of the backend. */
import { spawn } from 'node:child_process';
import { connect, createServer } from 'node:net';

const [mode, ...backend] = process.argv.slice(2);
if (mode === 'stdio') {
  const child = spawn(process.execPath, backend, { stdio: ['pipe', 'pipe', 'inherit'] });
  process.stdin.pipe(child.stdin);
  child.stdout.pipe(process.stdout);
  child.on('exit', () => process.exit(0));
} else {
  const child = spawn(process.execPath, [...backend, 'http'], { stdio: ['pipe', 'ignore', 'pipe'] });
  const port = await new Promise((resolve) => {
    child.stderr.on('data', (words) => resolve(Number(/:(\d+)\/mcp/.exec(words)?.[1])));
  });
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({ port, host: '127.0.0.1', noDelay: true });
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ]) {
      from.pipe(to);
      from.on('error', () => to.destroy());
    }
  });
  server.listen(0, '127.0.0.1', () =>
    process.stderr.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`),
  );
  process.stdin.on('end', () => process.exit(0)).resume();
}
