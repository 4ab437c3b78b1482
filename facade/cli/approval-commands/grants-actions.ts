/** Owns `grants list`, `add`, `revoke` and `check`: an owner at the terminal decides, the audit keeps who; refuses everybody else. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import { openAuditOnDemand } from '../../audit/audit-log.ts';
import type { Config } from '../../config/config.ts';
import { type Grant, requireOrigin, requireScope } from '../../consent/grants/grant.ts';
import { checkGrants } from '../../consent/grants/grant-precondition.ts';
import { Grants } from '../../consent/grants/grant-store.ts';
import { openState } from '../../state/sqlite-state.ts';
import { type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { signed } from '../command-state.ts';
import { readTime } from '../durations.ts';
import { json, plural, printable, table } from '../print.ts';
import { doubts, grantNamed } from './grant-names.ts';

/** Prints them. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runGrantList(
  { origin, profile, ...options }: GrantOptions & { readonly origin?: string },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const grants = await withGrants({ config, io }, (all) =>
    all.list({ ...(origin !== undefined && { origin }), ...(profile !== undefined && { profile }) }),
  );
  if (options.json === true) io.stdout(json({ grants }));
  else if (grants.length === 0) io.stderr('Nothing is granted.\n');
  else
    io.stdout(
      table(
        io,
        ['ID', 'ORIGIN', 'PROFILE', 'SCOPE', 'KIND', 'TOOLS', 'UNTIL', 'BY'],
        grants.map((grant) => [
          grant.id,
          grant.origin,
          grant.profile,
          grant.scope,
          { text: grant.kind, colour: grant.kind === 'deny' ? 'red' : 'green' },
          grant.tools?.join(',') ?? '',
          until(grant) || 'until revoked',
          grant.by,
        ]),
      ),
    );
  return EXIT.ok;
}

/** Gives. Throws IDENTITY for somebody who is no owner, USAGE, AUDIT_FAILED, STATE_FAILED. */
export async function runGrantAdd(
  options: GrantOptions & {
    readonly origin: string;
    readonly scope: string;
    readonly kind: Grant['kind'];
    readonly for?: string;
  },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const by = readOwner(config, options, io);
  const { origin, scope, kind, session, tab } = options;
  const profile = readProfile(config, options);
  const tools = options.tools?.split(',').map((tool) => tool.trim());
  const wanted = {
    origin,
    profile,
    scope,
    kind,
    ...(tools !== undefined && { tools }),
    ...(session !== undefined && { session }),
    ...(tab !== undefined && { tab }),
    ...(options.for !== undefined && { expiresAt: Date.now() + readTime(options.for) }),
  };
  const grant = await withGrants({ config, io }, (all) => all.add(wanted, by));
  for (const doubt of await doubts(grant.tools ?? [], config)) io.stderr(`warning: ${printable(doubt)}\n`);
  if (options.json === true) io.stdout(json({ grant }));
  else
    io.stderr(
      `${grant.kind === 'deny' ? 'Denied' : 'Granted'} ${printable(describe(grant))}, until ${printable(until(grant) || 'revoked')}. Take it back with: tollgate grants revoke ${grant.id}\n`,
    );
  return EXIT.ok;
}

/** Takes back, by an id or the beginning of one. Throws as `runGrantAdd`. */
export async function runGrantRevoke(options: GrantOptions & { readonly id: string }, io: Io): Promise<number> {
  const config = readForOwner(options, io);
  const by = readOwner(config, options, io);
  const grant = await withGrants({ config, io }, async (all) =>
    all.revoke(grantNamed(await all.list(), options.id).id, by),
  );
  if (options.json === true) io.stdout(json({ grant }));
  else io.stderr(`Revoked: ${printable(describe(grant))}. It holds for no call from now on.\n`);
  return EXIT.ok;
}

/** Answers by its exit code too. Throws CONFIG_INVALID, USAGE, STATE_FAILED. */
export async function runGrantCheck(
  options: GrantOptions & { readonly origin: string; readonly scope: string; readonly tool?: string },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const { origin, scope, tool, session, tab } = options;
  requireOrigin(origin);
  requireScope(scope);
  const profile = readProfile(config, options);
  const from = { ...(session !== undefined && { id: session }), ...(tab !== undefined && { tab }) };
  const found = checkGrants(await withGrants({ config, io }, (all) => all.of(origin)), {
    profiles: [profile],
    scope,
    from,
    ...(tool !== undefined && { tool }),
  });
  if (options.json === true) io.stdout(json(found));
  else
    io.stdout(
      `${found.granted ? 'granted' : found.code === 'DENIED' ? 'denied' : 'not granted: nobody has decided'}${found.grant === undefined ? '' : ` by ${found.grant.id}`}\n`,
    );
  if (found.granted) return EXIT.ok;
  return found.code === 'DENIED' ? EXIT.refused : EXIT.approval;
}

async function withGrants<T>(
  { config, io }: { readonly config: Config; readonly io: Io },
  work: (grants: Grants) => Promise<T> | T,
): Promise<T> {
  const state = openState(config.state);
  const audit = openAuditOnDemand(config.audit);
  const append = (entry: AuditEntry): void => audit.append(signed(entry, io));
  try {
    return await work(new Grants({ state, now: Date.now, append }));
  } finally {
    await audit.close();
    await state.close();
  }
}

function readOwner(config: Config, options: GrantOptions, io: Io): string {
  const { id, owner } = readPrincipal(config, options, io);
  if (owner !== true)
    throw new TollgateError('IDENTITY', {
      detail: `${id} is no owner, and only an owner grants.`,
      next: 'Use --as with a principal that has `owner: true`.',
    });
  return id;
}

function readProfile(config: Config, { profile = 'default' }: GrantOptions): string {
  if (!config.profiles.has(profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${printable(profile)}.`,
      next: `Known are ${[...config.profiles.keys()].join(', ')}.`,
    });
  return profile;
}

/** When it ends by itself; '' for one that stands until it is revoked. */
function until({ expiresAt, session, tab }: Grant): string {
  const parts = [
    ...(expiresAt === undefined ? [] : [new Date(expiresAt).toISOString()]),
    ...(session === undefined ? [] : [`session ${session}`]),
    ...(tab === undefined ? [] : [`tab ${tab}`]),
  ];
  return parts.join(', ');
}

function describe({ scope, origin, profile, tools }: Grant): string {
  return `${scope} to ${origin} with profile ${profile}${tools === undefined ? '' : ` for ${plural(tools.length, 'tool')}`}`;
}
/** What a grants command is told on the command line. */
export interface GrantOptions extends Pick<CommonOptions, 'config' | 'json'> {
  readonly as?: string;
  readonly profile?: string;
  readonly tools?: string;
  readonly session?: string;
  readonly tab?: string;
}
