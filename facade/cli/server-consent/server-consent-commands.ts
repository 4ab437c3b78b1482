/** Runs `revoke`, and `servers info`, `enable` and `disable`. */
import { randomUUID } from 'node:crypto';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import type { ServerConsent } from '../../consent/servers/consent-store.ts';
import { type ConsentSummary, consentSummary } from '../../consent/servers/consent-summary.ts';
import type { PendingItem } from '../../consent/servers/pending-tools.ts';
import { KillSwitch } from '../../consent/switch/kill-switch.ts';
import { restartServer } from '../../runtime/servers/revivals.ts';
import { readReports, runsServer } from '../../runtime/servers/server-reports.ts';
import { Stops } from '../../state/stop-file.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withDecisions } from '../command-state.ts';
import { json, printable, printResult } from '../print.ts';
import { inRows } from '../terminal-rows.ts';
import { startScreen } from './consent-screens.ts';
import {
  type ConsentOptions,
  type ConsentWiring,
  consentOwnerOf,
  noServer,
  type OwnerContext,
  serverNamed,
  withOwnerContext,
} from './owner-context.ts';
import { startReviewOf } from './start-screen.ts';

const STOPPED = 'No call reaches it from now on, and its processes end within a second.';

type NamedOptions = ConsentOptions & { readonly name: string };

/**
 * Withdraws all consent to a server. It takes effect before it is recorded, because a full disk must not keep a server
 * running. Throws USAGE, IDENTITY.
 */
export async function runRevoke(options: NamedOptions, io: Io, wiring: ConsentWiring): Promise<number> {
  return decideAgainst(options, { io, wiring }, async (owner) => {
    // A server that is no longer configured may still have consent.
    if (
      nameFault(options.name) !== undefined ||
      (!owner.config.servers.has(options.name) && !owner.consents.store.all().has(options.name))
    )
      throw noServer(options.name, owner.config.servers.keys());
    const revoked = await owner.consents.revoke(options.name);
    if (revoked) owner.record({ event: 'revoked', server: options.name, outcome: 'deny' });
    printResult(
      { io, options },
      { server: options.name, revoked },
      revoked ? `${options.name} is no longer approved. ${STOPPED}` : `${options.name} was not approved.`,
    );
    return EXIT.ok;
  });
}

/** Disables or enables a server; its consent stays. Throws USAGE, IDENTITY. */
export async function runServerSwitch(
  options: NamedOptions & { readonly enable: boolean },
  io: Io,
  wiring: ConsentWiring,
): Promise<number> {
  const { name, enable } = options;
  return (enable ? withOwnerContext : decideAgainst)(options, { io, wiring }, async (owner) => {
    serverNamed(owner.config, name);
    if (enable) {
      const enabled = owner.consents.store.disabled().has(name);
      owner.record({ event: 'enabled', server: name, outcome: 'allow' });
      await owner.consents.enable(name);
      await owner.revive(name);
      const { state } = owner.consents.statusOf(name);
      const advice =
        state === 'approved' || state === 'any tools' ? '' : ` It is not approved yet: tollgate approve ${name}`;
      printResult(
        { io, options },
        { server: name, enabled, consent: state },
        `${name} ${enabled ? 'is enabled.' : 'was not disabled. If Tollgate gave it up, it starts it again.'}${advice}`,
      );
      return EXIT.ok;
    }
    await owner.consents.disable(name, { by: owner.by, at: owner.now() });
    owner.record({ event: 'disabled', server: name, outcome: 'deny' });
    printResult(
      { io, options },
      { server: name, disabled: true },
      `${name} is disabled. ${STOPPED} Its approval stays.\nUndo it with: tollgate servers enable ${name}`,
    );
    return EXIT.ok;
  });
}

/**
 * Runs `work`, which decides against a server, while the server is stopped by name. The stop needs no database. If the
 * database fails, the stop stays. A stop that another person makes at the same time stays too.
 */
async function decideAgainst(
  options: NamedOptions,
  { io, wiring }: { readonly io: Io; readonly wiring: ConsentWiring },
  work: (owner: OwnerContext) => Promise<number>,
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
    if (code !== 'STATE_FAILED' && code !== 'STATE_LOST' && code !== 'STATE_AWAY') {
      stops.remove(options.name, stop);
      throw thrown;
    }
    // Without its id, it is carried to all machines when the store answers.
    if (stops.remove(options.name, stop)) stops.put(options.name, { since: stop.since, by });
    throw new TollgateError(code, {
      detail: `${message} Instead, ${options.name} was stopped as by tollgate kill.`,
      next: `${next} Then run this again, and lift the stop: tollgate kill --lift ${options.name}`,
      cause: thrown,
    });
  } finally {
    stops.close();
  }
}

/**
 * Restarts a server in every process that runs it. It is recorded first. Throws USAGE, IDENTITY, STATE_FAILED,
 * AUDIT_FAILED.
 */
export async function runServerRestart(options: NamedOptions, io: Io): Promise<number> {
  const { config, by } = consentOwnerOf(options, io);
  const { name } = options;
  serverNamed(config, name);
  return withDecisions(config, io, async ({ state, append }) => {
    const stopped = new KillSwitch(state).refusalOf(name);
    if (stopped !== undefined) throw stopped;
    const processes = ((await readReports(state)).get(name) ?? []).filter(runsServer).map(({ pid }) => pid);
    const count = processes.length;
    append({ type: 'server', event: 'restart', server: name, outcome: 'allow', by });
    await restartServer(state, name, randomUUID());
    printResult(
      { io, options },
      { server: name, processes },
      count === 0
        ? `${name} runs in no Tollgate now. If one gave it up, it starts again; otherwise the next call starts it.`
        : `${name} is restarted within a second, in ${count} process${count === 1 ? '' : 'es'}. ` +
            'Its running calls end.',
    );
    return EXIT.ok;
  });
}

/** Prints what would start, the approvals, and the changes that wait for one. It starts nothing. */
export async function runInfo(options: NamedOptions, io: Io, wiring: ConsentWiring): Promise<number> {
  return withOwnerContext(options, { io, wiring }, async ({ config, consents }) => {
    const server = serverNamed(config, options.name);
    const start = await startReviewOf(server, { config, consents }, io);
    const { consent, disabled } = consents.statusOf(server.name);
    const { word } = await consentSummary(server.name, consents, server);
    const pending = consents.tools.pending(server.name);
    const names = consents.lastSet(server.name)?.tools.map(({ name }) => name) ?? [];
    if (options.json === true) {
      io.stdout(
        json({
          server: server.name,
          consent: word,
          ...(disabled !== undefined && { disabled }),
          changed: start.changed,
          changes: start.changes,
          ...(consent !== undefined && { start: { hash: consent.hash, by: consent.by, at: consent.at } }),
          ...(consent?.tools !== undefined && { tools: { ...consent.tools, names } }),
          ...(pending !== undefined && { pending }),
        }),
      );
      return EXIT.ok;
    }
    io.stdout(inRows(io, startScreen(server, start)));
    const lines = [
      `  consent  ${word}`,
      ...(consent === undefined ? [] : [`  tools    ${approvedTools(consent.tools, names)}`]),
      ...(pending === undefined ? [] : waitingLines(pending)),
      ...(disabled === undefined ? [] : [`  disabled by ${disabled.by} (${disabled.at})`]),
    ];
    io.stdout(inRows(io, `${lines.map(printable).join('\n')}\n`));
    return EXIT.ok;
  });
}

function approvedTools(tools: ServerConsent['tools'], names: readonly string[]): string {
  if (tools === undefined) return 'its tools are not approved';
  const act = `by ${tools.by} (${tools.at})`;
  return tools.set === undefined ? `any tools, ${act}` : `${names.length} tools, ${act}: ${names.join(', ')}`;
}

function waitingLines(pending: PendingItem): readonly string[] {
  return [
    ...(['changed', 'added', 'removed'] as const).flatMap((kind) =>
      pending[kind].length === 0 ? [] : [`  waiting  ${kind}: ${pending[kind].join(', ')} (since ${pending.since})`],
    ),
    ...(pending.more === undefined ? [] : [`  waiting  and ${pending.more} more: all its tools are withheld`]),
  ];
}

/** Returns the consent of each server. */
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
