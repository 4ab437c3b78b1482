/** Owns `run` and `serve`: one configuration served over stdio or HTTP until its end. */
import { principalForStdio } from '../config/identity.ts';
import { loadConfig } from '../config/load.ts';
import type { Assemble, Assembled } from '../assembled.ts';
import { serveHttp } from '../wire/http.ts';
import { serveStdio } from '../wire/stdio.ts';
import { connectHelp, openAccess } from './access.ts';
import { EXIT, type Io } from './io.ts';

const MAX_MESSAGE = 64 * 1_048_576;

/** Serves one agent on stdin and stdout; ends with the input or a signal. */
export async function runStdio(options: { config: string; as?: string; opa?: string }, io: Io, assemble: Assemble): Promise<number> {
  const { assembled } = await open(options, io, assemble);
  const principal = principalForStdio(assembled.config, { user: io.user, ...(options.as === undefined ? {} : { as: options.as }) });
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  await serveStdio({ facade: assembled.gateway, principal, input: io.stdin as NodeJS.ReadStream, output: io.out as NodeJS.WriteStream, maxBytes: MAX_MESSAGE, stop: stop.signal, onFault: logFault(io) });
  await assembled.gateway.close();
  return EXIT.ok;
}

/** Serves over Streamable HTTP; prints where, and how clients connect; ends with a signal. */
export async function runHttp(options: { config: string; port?: string; opa?: string; json?: true }, io: Io, assemble: Assemble): Promise<number> {
  const { assembled } = await open(options, io, assemble);
  const { config } = assembled;
  const listen = options.port === undefined ? config.listen : { ...config.listen, port: Number(options.port) };
  const access = openAccess(config, listen);
  const server = await serveHttp({ facade: assembled.gateway, listen, authenticate: access.authenticate, onFault: logFault(io) });
  if (options.json === true) io.stdout(`${JSON.stringify({ url: server.url, tokenFile: access.tokenFile })}\n`);
  const token = access.token === undefined ? 'Anybody on this machine may connect: listen.auth is none.' : `token ${access.token}\n(kept in ${access.tokenFile})`;
  io.stderr(`Tollgate is listening on ${server.url}\n${token}\n\n${connectHelp({ url: server.url, config: config.file, command: ['tollgate'], ...(access.token === undefined ? {} : { token: access.token }) })}\n`);
  await io.stopped;
  await server.close();
  await assembled.gateway.close();
  return EXIT.ok;
}

async function open(options: { config: string; opa?: string }, io: Io, assemble: Assemble): Promise<{ assembled: Assembled }> {
  const config = loadConfig(options.config, { env: io.env, home: io.home });
  const assembled = await assemble(config, { onLog: io.stderr, ...(options.opa === undefined ? {} : { opa: options.opa }) });
  for (const notice of assembled.notices) io.stderr(`${notice}\n`);
  return { assembled };
}

/** A throw that is not ours is whole here, and opaque outside. */
function logFault(io: Io): (thrown: unknown) => void {
  return (thrown) => io.stderr(`fault: ${thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)}\n`);
}
