/** Runs `run` and `serve`: serves one configuration over stdio or HTTP. */
import type { Readable, Writable } from 'node:stream';
import { MAX_INPUT_BYTES } from '../../../catalogs/text/time-slices.ts';
import { acceptedFolder } from '../../config/accepted-config.ts';
import type { ListenConfig } from '../../config/config.ts';
import { differenceNote, type InForce } from '../../config/config-in-force.ts';
import { keepParsedFiles } from '../../config/reading/parsed-files.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { openHostEndpoint } from '../../serve/host/host-endpoint.ts';
import { type ServedFacade, serveHttp } from '../../serve/http/http-listener.ts';
import { serveStdio } from '../../serve/stdio-transport.ts';
import { type CommonOptions, readInForce, readPrincipal, withReloading } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type Access, connectHelp, createAccess, openAccess } from './client-access.ts';
import { type ReloadedFacade, ServedTenants, tenantUrl } from './served-tenants.ts';

type StdioOptions = CommonOptions & { as?: string };
type HttpOptions = CommonOptions & { port?: number; console?: true | string };
type ServingWiring = Pick<Wiring, 'assemble' | 'issuerKeys' | 'inspect'>;

/** Serves one agent on stdin and stdout, until the input ends or a signal comes. */
export function runStdio(options: StdioOptions, io: Io, wiring: ServingWiring): Promise<number> {
  return keepParsedFiles(acceptedOf(options, io), () => serveAgent(options, io, wiring));
}

/** Serves agents over Streamable HTTP until a signal comes. Prints the address, and how clients connect. */
export function runHttp(options: HttpOptions, io: Io, wiring: ServingWiring): Promise<number> {
  return keepParsedFiles(acceptedOf(options, io), () => listen(options, io, wiring));
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
  const address = options.port === undefined ? config.listen : { ...config.listen, port: options.port };
  const { stopped } = io;
  const tenants = new ServedTenants(config, options, io);
  const read = (): InForce => {
    const next = readInForce(options, io, true);
    tenants.check(next.config);
    return next;
  };
  const opening = { inForce, read, options, io, assemble, listening: true };
  return withReloading(opening, (assembled, reloader) =>
    tenants.within({ assemble, own: () => assembled.config }, async (served) => {
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
      if (options.json === true)
        print({ url: server.url, tokenFile: access.tokenFile, ...(places.length > 0 && { tenants: places }) }, io);
      // Over stdio, a client must name its principal with --as if several are possible.
      const isClear = config.principals.length === 1 || config.principals.some(({ id }) => id === io.user);
      io.stderr(
        welcome({
          url: server.url,
          access,
          file: config.file,
          command: io.self,
          ...(isClear ? {} : { as: access.principal }),
        }),
      );
      for (const { name, url, tokenFile } of places) io.stderr(`${name}: ${url} (token in ${tokenFile})\n`);
      const window = options.console !== undefined ? await openWindow(options, io, { inspect }) : undefined;
      await stopped;
      await window?.close();
      await server.close();
      return EXIT.ok;
    }),
  );
}

function print(facts: object, io: Io): void {
  io.stdout(`${JSON.stringify(facts)}\n`);
}

/** Returns how the listener reaches a facade. */
function servedFacade(
  { assembled, reloader }: ReloadedFacade,
  listen: ListenConfig,
  issuerKeys: ServingWiring['issuerKeys'],
): ServedFacade {
  const { gateway, onFault } = assembled;
  const reload = (): Promise<void> => reloader.now();
  return {
    facade: gateway,
    listen,
    ...createAccess(() => assembled.config, listen, issuerKeys),
    host: openHostEndpoint(assembled, { listen, now: () => performance.now(), onFault, reload }),
  };
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
