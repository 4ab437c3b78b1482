/**
 * Runs `revoke` and `servers info`, `enable` and `disable`. They refuse names that no configuration and no state has.
 */
import { randomUUID } from 'node:crypto';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import { type ConsentSummary, consentSummary } from '../../consent/servers/consent-summary.ts';
import { Stops } from '../../state/stop-file.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, printable } from '../print.ts';
import { inRows } from '../terminal-rows.ts';
import { startScreen } from './consent-screens.ts';
import {
  type ConsentOptions,
  type ConsentWiring,
  consentOwnerOf,
  type OwnerContext,
  serverNamed,
  withOwnerContext,
} from './owner-context.ts';
import { lookAtStart } from './start-screen.ts';

type Named = ConsentOptions & { readonly name: string };

/**
 * Withdraws all consent. It takes effect first and is recorded after that, because a full disk must not keep a server
 * running. Throws USAGE, IDENTITY.
 */
export async function runRevoke(options: Named, io: Io, wiring: ConsentWiring): Promise<number> {
  return against(options, { io, wiring }, async (desk) => {
    // A server that was removed from the configuration may have left its consent.
    if (
      nameFault(options.name) !== undefined ||
      (!desk.config.servers.has(options.name) && !desk.consents.store.all().has(options.name))
    )
      throw noSuch(desk, options.name);
    const was = await desk.consents.revoke(options.name);
    if (was) desk.record({ event: 'revoked', server: options.name, outcome: 'deny' });
    tell(
      { io, options },
      { server: options.name, revoked: was },
      was
        ? `${options.name} is no longer approved: no call reaches it from now on, and its processes end within a second.`
        : `${options.name} was not approved.`,
    );
    return EXIT.ok;
  });
}

/** Disables or enables a server; its consent stays. Throws USAGE, IDENTITY. */
export async function runServerSwitch(
  options: Named & { readonly enable: boolean },
  io: Io,
  wiring: ConsentWiring,
): Promise<number> {
  const { name, enable } = options;
  return (enable ? withOwnerContext : against)(options, { io, wiring }, async (desk) => {
    serverNamed(desk.config, name);
    if (enable) {
      const was = desk.consents.store.disabled().has(name);
      desk.record({ event: 'enabled', server: name, outcome: 'allow' });
      await desk.consents.enable(name);
      await desk.revive(name);
      const { state } = desk.consents.statusOf(name);
      const advice =
        state === 'approved' || state === 'any tools' ? '' : ` It is not approved yet: tollgate approve ${name}`;
      tell(
        { io, options },
        { server: name, enabled: was, consent: state },
        `${name} ${was ? 'is enabled.' : 'was not disabled; if Tollgate gave it up, it is started again.'}${advice}`,
      );
      return EXIT.ok;
    }
    await desk.consents.disable(name, { by: desk.by, at: desk.now() });
    desk.record({ event: 'disabled', server: name, outcome: 'deny' });
    tell(
      { io, options },
      { server: name, disabled: true },
      `${name} is disabled: no call reaches it from now on, and its processes end within a second. Its approval stays. Undo it with: tollgate servers enable ${name}`,
    );
    return EXIT.ok;
  });
}

/**
 * Decides against a server. It is first stopped by name, which needs no database, until the database has the decision.
 * If that fails, it stays stopped. A stop that someone else made meanwhile stays too.
 */
async function against(
  options: Named,
  { io, wiring }: { readonly io: Io; readonly wiring: ConsentWiring },
  work: (desk: OwnerContext) => Promise<number>,
): Promise<number> {
  const { config, by } = consentOwnerOf(options, io);
  if (!config.servers.has(options.name)) return withOwnerContext(options, { io, wiring }, work);
  const stops = new Stops(config.state);
  const stop = { since: new Date().toISOString(), by, id: randomUUID() };
  try {
    stops.putNew(options.name, stop);
    const code = await withOwnerContext(options, { io, wiring }, work);
    stops.remove(options.name, stop);
    return code;
  } catch (thrown) {
    const { code, message, next } = asTollgateError(thrown);
    if (code !== 'STATE_FAILED' && code !== 'STATE_LOST') {
      stops.remove(options.name, stop);
      throw thrown;
    }
    throw new TollgateError(code, {
      detail: `${message} ${options.name} was stopped by name instead, as by tollgate kill.`,
      next: `${next} Then run this again, and lift the stop: tollgate kill --lift ${options.name}`,
      cause: thrown,
    });
  } finally {
    stops.close();
  }
}

/** Prints what would start, who approved what, and what waits. Starts nothing. */
export async function runInfo(options: Named, io: Io, wiring: ConsentWiring): Promise<number> {
  return withOwnerContext(options, { io, wiring }, async ({ config, consents }) => {
    const server = serverNamed(config, options.name);
    const start = await lookAtStart(server, { config, consents }, io);
    const { consent, disabled } = consents.statusOf(server.name);
    const { word } = await consentSummary(server.name, consents, server);
    const pending = consents.tools.pending(server.name);
    const set = consents.lastSet(server.name);
    if (options.json === true) {
      io.stdout(
        json({
          server: server.name,
          consent: word,
          ...(disabled !== undefined && { disabled }),
          changed: start.changed,
          ...(consent !== undefined && { start: { hash: consent.hash, by: consent.by, at: consent.at } }),
          ...(consent?.tools !== undefined && {
            tools: { ...consent.tools, names: set?.tools.map(({ name }) => name) ?? [] },
          }),
          ...(pending !== undefined && { pending }),
        }),
      );
      return EXIT.ok;
    }
    io.stdout(inRows(io, startScreen(server, start)));
    const tools =
      consent?.tools === undefined
        ? 'its tools are not approved'
        : consent.tools.set === undefined
          ? `any tools, by ${consent.tools.by} (${consent.tools.at})`
          : `${set?.tools.length ?? 0} tools, by ${consent.tools.by} (${consent.tools.at}): ${(set?.tools ?? []).map(({ name }) => name).join(', ')}`;
    const waiting =
      pending === undefined
        ? []
        : (['changed', 'added', 'removed'] as const).flatMap((what) =>
            pending[what].length === 0
              ? []
              : [`  waiting  ${what}: ${pending[what].join(', ')} (seen ${pending.since})`],
          );
    const more = pending?.more === undefined ? [] : [`  waiting  and ${pending.more} more: all its tools are withheld`];
    const words = [
      `  consent  ${word}`,
      ...(consent === undefined ? [] : [`  tools    ${tools}`]),
      ...waiting,
      ...more,
      ...(disabled === undefined ? [] : [`  disabled by ${disabled.by} (${disabled.at})`]),
    ];
    io.stdout(inRows(io, `${words.map(printable).join('\n')}\n`));
    return EXIT.ok;
  });
}

/** Returns the consent of each server for a list, from the state and the files. */
export async function consentSummaries({
  config,
  consents,
}: Pick<OwnerContext, 'config' | 'consents'>): Promise<ReadonlyMap<string, ConsentSummary>> {
  return new Map(
    await Promise.all(
      [...config.servers.values()].map(
        async (server) => [server.name, await consentSummary(server.name, consents, server)] as const,
      ),
    ),
  );
}

function noSuch({ config }: OwnerContext, name: string): TollgateError {
  return new TollgateError('USAGE', {
    detail: `There is no server ${quote(name)}.`,
    next: `Name one of tollgate.yaml; ${didYouMean(name, config.servers.keys())}`,
  });
}

function tell({ io, options }: { io: Io; options: Named }, data: unknown, words: string): void {
  if (options.json === true) io.stdout(json(data));
  else io.stderr(`${words}\n`);
}
