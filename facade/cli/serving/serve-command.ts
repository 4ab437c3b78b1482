/** Runs `run` and `serve`: serves one configuration over stdio or HTTP. */
import type { Readable, Writable } from 'node:stream';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { MAX_INPUT_BYTES } from '../../../catalogs/text/time-slices.ts';
import { acceptedFolder } from '../../config/accepted-config.ts';
import type { ListenConfig } from '../../config/config.ts';
import { differenceNote, type InForce } from '../../config/config-in-force.ts';
import { keepParsedFiles } from '../../config/reading/parsed-files.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { joinMetrics } from '../../runtime/metrics/prometheus-text.ts';
import { openHostEndpoint } from '../../serve/host/host-endpoint.ts';
import { serveHttp } from '../../serve/http/http-listener.ts';
import { serveStdio } from '../../serve/stdio-transport.ts';
import { type CommonOptions, readInForce, readPrincipal, withReloading } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type Access, connectHelp, createAccess, openAccess } from './client-access.ts';
import type { WorkerLink } from './worker-link.ts';

type StdioOptions = CommonOptions & { as?: string };
type HttpOptions = CommonOptions & { port?: number; console?: true | string; workers?: number };
type ServingWiring = Pick<Wiring, 'assemble' | 'issuerKeys' | 'inspect'>;

/** Serves one agent on stdin and stdout, until the input ends or a signal comes. */
export function runStdio(options: StdioOptions, io: Io, wiring: ServingWiring): Promise<number> {
  return keepParsedFiles(acceptedOf(options, io), () => serveAgent(options, io, wiring));
}

/** Serves agents over Streamable HTTP until a signal comes. Prints the address, and how clients connect. */
export async function runHttp(options: HttpOptions, io: Io, wiring: ServingWiring): Promise<number> {
  if (options.workers !== undefined && io.worker === undefined) {
    if (io.canFork !== true) throw new TollgateError('USAGE', { detail: '--workers needs the program `tollgate`.' });
    const { runWorkers } = await import('./worker-group.ts');
    return runWorkers(options.workers, io, async () =>
      options.console === undefined ? undefined : openWindow(options, io, wiring),
    );
  }
  try {
    return await keepParsedFiles(acceptedOf(options, io), () => listen(options, io, wiring));
  } finally {
    io.worker?.close();
  }
}

function acceptedOf(options: CommonOptions, io: Io): string {
  return acceptedFolder(configFile(options.config, io), io);
}

async function serveAgent(options: StdioOptions, io: Io, { assemble }: ServingWiring): Promise<number> {
  const inForce = readInForce(options, io);
  const { config } = inForce;
  const principal = readPrincipal(config, options, io);
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  return withReloading(
    { inForce, options, io, assemble, listening: false },
    async ({ gateway, notices, onFault, warmUp }) => {
      tell(notices, inForce, io);
      warmUp();
      await io.watch?.({ state: config.state, audit: config.audit, parentIsClient: true });
      await serveStdio({
        facade: gateway,
        principal,
        input: io.stdin as Readable,
        output: io.out as Writable,
        maxBytes: MAX_INPUT_BYTES,
        stop: stop.signal,
        drainMs: config.limits.drainMs,
        onUrge: io.onUrge,
        onFault,
      });
      return EXIT.ok;
    },
  );
}

async function listen(options: HttpOptions, io: Io, { assemble, issuerKeys, inspect }: ServingWiring): Promise<number> {
  const inForce = readInForce(options, io, true);
  const { config } = inForce;
  const { worker } = io;
  const port = options.port === undefined ? {} : { port: options.port };
  const address = { ...config.listen, ...port, ...(worker !== undefined && hopOf(config.listen, worker)) };
  const { stopped } = io;
  const isWorker = address.replicaPort !== undefined;
  return withReloading({ inForce, options, io, assemble, listening: true, isWorker }, async (assembled, reloader) => {
    const { gateway, notices, onFault, warmUp } = assembled;
    tell(notices, inForce, io);
    warmUp();
    await io.watch?.({ state: config.state, audit: config.audit, parentIsClient: false });
    io.onHangup?.(() => void reloader.now());
    const access = openAccess(config, address);
    const host = openHostEndpoint(assembled, {
      listen: address,
      now: () => performance.now(),
      onFault,
      reload: () => reloader.now(),
    });
    const server = await serveHttp({
      facade: gateway,
      listen: address,
      ...(assembled.state.isShared && { shared: assembled.state }),
      ...(worker !== undefined && {
        joinMetrics: async (who, own) => {
          const texts = [...(await worker.metricsOfOthers(who)), [worker.slot, own] as const];
          const sorted = texts.sort(([one], [other]) => one - other);
          return joinMetrics('worker', new Map(sorted.map(([slot, text]) => [String(slot), text])));
        },
      }),
      ...createAccess(() => assembled.config, address, issuerKeys),
      host,
      drainMs: config.limits.drainMs,
      onUrge: io.onUrge,
      onFault,
    });
    // Over stdio, a client must name its principal with --as if several are possible.
    const isClear = config.principals.length === 1 || config.principals.some(({ id }) => id === io.user);
    const announcement = {
      out: options.json === true ? `${JSON.stringify({ url: server.url, tokenFile: access.tokenFile })}\n` : '',
      err: welcome({
        url: server.url,
        access,
        file: config.file,
        command: io.self,
        ...(isClear ? {} : { as: access.principal }),
      }),
    };
    if (worker === undefined) {
      io.stdout(announcement.out);
      io.stderr(announcement.err);
    }
    worker?.share({ feed: assembled.feed, metrics: (who) => server.metrics(who) });
    worker?.ready(announcement);
    const window =
      options.console !== undefined && worker === undefined ? await openWindow(options, io, { inspect }) : undefined;
    await stopped;
    await window?.close();
    await server.close();
    return EXIT.ok;
  });
}

/** Workers reach each other on this machine. With a port of the configuration, each adds its number to it. */
function hopOf(
  { replicaPort, replicaHost }: ListenConfig,
  { slot }: WorkerLink,
): Pick<ListenConfig, 'replicaPort' | 'replicaHost'> {
  return replicaPort === undefined || replicaPort === 0
    ? { replicaPort: 0, replicaHost: replicaHost ?? '127.0.0.1' }
    : { replicaPort: replicaPort + slot };
}

/** Opens the console in this process too. */
async function openWindow(
  { port: _port, console: owner, ...options }: HttpOptions,
  io: Io,
  wiring: Pick<Wiring, 'inspect'>,
): Promise<{ close(): Promise<void> }> {
  return (await import('../console/console-command.ts')).openConsole(
    { ...options, ...(typeof owner === 'string' && { as: owner }) },
    io,
    wiring,
  );
}

function tell(notices: AssembledFacade['notices'], { differing }: InForce, io: Io): void {
  const note = differenceNote(differing);
  for (const notice of [...notices, ...(note === undefined ? [] : [printable(note)])]) io.stderr(`${notice}\n`);
}

function welcome({
  access,
  file,
  ...at
}: {
  url: string;
  access: Access;
  file: string;
  command: readonly string[];
  as?: string;
}): string {
  const { token, tokenFile } = access;
  const how =
    token === undefined
      ? 'Every user of this machine may connect: listen.auth is none.'
      : `token ${token}\n(stored in ${tokenFile})`;
  const help = connectHelp({ ...at, config: file, ...(token === undefined ? {} : { token }) });
  return `Tollgate is listening on ${at.url}\n${how}\n\n${help}\n`;
}
