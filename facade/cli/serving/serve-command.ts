/** Runs `run` and `serve`: serves one configuration over stdio or HTTP. */
import type { Readable, Writable } from 'node:stream';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { MAX_INPUT_BYTES } from '../../../catalogs/text/time-slices.ts';
import type { Principal } from '../../../policies/port.ts';
import { acceptedFolder } from '../../config/accepted-config.ts';
import type { ListenConfig } from '../../config/config.ts';
import { differenceNote, type InForce } from '../../config/config-in-force.ts';
import { keepParsedFiles } from '../../config/reading/parsed-files.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { joinMetrics } from '../../runtime/metrics/prometheus-text.ts';
import { openHostEndpoint } from '../../serve/host/host-endpoint.ts';
import { type HttpServer, type ServedFacade, serveHttp } from '../../serve/http/http-listener.ts';
import { serveStdio } from '../../serve/stdio-transport.ts';
import { type CommonOptions, readInForce, readPrincipal, withReloading } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type Access, connectHelp, createAccess, openAccess } from './client-access.ts';
import { type ReloadedFacade, ServedTenants, tenantUrl } from './served-tenants.ts';
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
    { inForce, read: () => readInForce(options, io), options, io, assemble, listening: false },
    async (assembled) => {
      const { gateway, onFault, warmUp } = assembled;
      tell({ assembled, inForce }, io);
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
  const tenants = new ServedTenants(config, options, io);
  const read = (): InForce => {
    const next = readInForce(options, io, true);
    tenants.check(next.config);
    return next;
  };
  const isWorker = address.replicaPort !== undefined;
  const opening = { inForce, read, options, io, assemble, listening: true, isWorker };
  return withReloading(opening, (assembled, reloader) =>
    tenants.within({ assemble, isWorker, own: () => assembled.config }, async (served) => {
      const own = { assembled, reloader, inForce };
      const all = [own, ...served.values()];
      for (const one of all) one.assembled.warmUp();
      tell(own, io);
      for (const [name, one] of served) tell({ ...one, of: `${name}: ` }, io);
      await io.watch?.({ state: config.state, audit: config.audit, parentIsClient: false });
      io.onHangup?.(() => all.forEach((one) => void one.reloader.now()));
      const access = openAccess(config, address);
      const server = await serveHttp({
        ...servedFacade(own, address, issuerKeys),
        ...(worker !== undefined && { joinMetrics: (who, text) => joinedMetrics(worker, who, text) }),
        tenants: new Map(
          [...served].map(([name, one]) => [name, servedFacade(one, one.assembled.config.listen, issuerKeys)]),
        ),
        drainMs: config.limits.drainMs,
        onUrge: io.onUrge,
        onFault: assembled.onFault,
      });
      const places = [...served].map(([name, one]) => ({
        name,
        url: tenantUrl(server.url, name),
        tokenFile: openAccess(one.assembled.config, one.assembled.config.listen).tokenFile,
      }));
      const announcement = announce({ server, config, access, places }, options, io);
      if (worker === undefined) {
        io.stdout(announcement.out);
        io.stderr(announcement.err);
      }
      worker?.share({ feed: assembled.feed, metrics: (who) => server.metrics(who) });
      worker?.ready(announcement);
      const isConsole = options.console !== undefined && worker === undefined;
      const window = isConsole ? await openWindow(options, io, { inspect }) : undefined;
      await stopped;
      await window?.close();
      await server.close();
      return EXIT.ok;
    }),
  );
}

/** What a listener says once it is ready: to programs, and to people. */
function announce(
  { server, config, access, places }: ListeningPlaces,
  options: HttpOptions,
  io: Io,
): { readonly out: string; readonly err: string } {
  // Over stdio, a client must name its principal with --as if several are possible.
  const isClear = config.principals.length === 1 || config.principals.some(({ id }) => id === io.user);
  const facts = { url: server.url, tokenFile: access.tokenFile, ...(places.length > 0 && { tenants: places }) };
  const welcomed = welcome({
    url: server.url,
    access,
    file: config.file,
    command: io.self,
    ...(isClear ? {} : { as: access.principal }),
  });
  return {
    out: options.json === true ? `${JSON.stringify(facts)}\n` : '',
    err: welcomed + places.map(({ name, url, tokenFile }) => `${name}: ${url} (token in ${tokenFile})\n`).join(''),
  };
}

/** Where a listener and its tenants are reached. */
interface ListeningPlaces {
  readonly server: Pick<HttpServer, 'url'>;
  readonly config: InForce['config'];
  readonly access: Access;
  readonly places: readonly { readonly name: string; readonly url: string; readonly tokenFile: string | undefined }[];
}

/** Returns the metrics of all workers of a machine. `own`: those of this one. */
async function joinedMetrics(worker: WorkerLink, who: Principal, own: string): Promise<string> {
  const texts = [...(await worker.metricsOfOthers(who)), [worker.slot, own] as const];
  const sorted = texts.sort(([one], [other]) => one - other);
  return joinMetrics('worker', new Map(sorted.map(([slot, text]) => [String(slot), text])));
}

/** Returns how the listener reaches a facade. */
function servedFacade(
  { assembled, reloader }: ReloadedFacade,
  listen: ListenConfig,
  issuerKeys: ServingWiring['issuerKeys'],
): ServedFacade {
  const { gateway, onFault, state } = assembled;
  const reload = (): Promise<void> => reloader.now();
  return {
    facade: gateway,
    listen,
    ...(state.isShared && { shared: state }),
    ...createAccess(() => assembled.config, listen, issuerKeys),
    host: openHostEndpoint(assembled, { listen, now: () => performance.now(), onFault, reload }),
  };
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

function tell({ assembled, inForce, of = '' }: Told, io: Io): void {
  const note = differenceNote(inForce.differing);
  for (const notice of [...assembled.notices, ...(note === undefined ? [] : [printable(note)])])
    io.stderr(`${of}${notice}\n`);
}

/** `of` begins each line. */
interface Told {
  readonly assembled: Pick<AssembledFacade, 'notices'>;
  readonly inForce: InForce;
  readonly of?: string;
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
