/** Runs `grants list`, `add`, `revoke` and `check`. An owner at the terminal decides, and the audit records who. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import { type Grant, requireOrigin, requireScope } from '../../consent/grants/grant.ts';
import { checkGrants } from '../../consent/grants/grant-precondition.ts';
import { Grants } from '../../consent/grants/grant-store.ts';
import { ApprovedTools } from '../../consent/servers/approved-tools.ts';
import { type OwnerOptions, readDecider, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withDecisions, withState } from '../command-state.ts';
import { readTime } from '../durations.ts';
import { json, plural, printable, printList, printResult } from '../print.ts';

const PREFIX = 'grant_';
const SHORT_DIGITS = 12;

/** Prints the grants. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runGrantList(
  { origin, profile, ...options }: GrantOptions & { readonly origin?: string },
  io: Io,
): Promise<number> {
  const config = readForOwner(options, io);
  const grants = await withGrants({ config, io }, (all) =>
    all.list({ ...(origin !== undefined && { origin }), ...(profile !== undefined && { profile }) }),
  );
  printList(
    { io, options },
    {
      data: { grants },
      columns: ['ID', 'ORIGIN', 'PROFILE', 'KIND', 'SCOPE AND TOOLS', 'UNTIL', 'BY'],
      rows: grants.map((grant) => [
        shortId(grant),
        grant.origin,
        grant.profile,
        { text: grant.kind, colour: grant.kind === 'deny' ? 'red' : 'green' },
        `${grant.scope} ${grant.tools?.join(', ') ?? ''}`,
        until(grant) || 'revoked',
        grant.by,
      ]),
      empty: 'Nothing is granted.',
      summary: `${plural(grants.length, 'grant')}. Withdraw one with: tollgate grants revoke ID`,
    },
  );
  return EXIT.ok;
}

/** Adds a grant. Throws IDENTITY for a principal that is no owner, USAGE, AUDIT_FAILED, STATE_FAILED. */
export async function runGrantAdd(
  options: GrantOptions & {
    readonly origin: string;
    readonly scope: string;
    readonly kind: Grant['kind'];
    readonly for?: string;
  },
  io: Io,
): Promise<number> {
  const { config, by } = readDecider(options, 'grants', io);
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
  for (const warning of await unknownToolWarnings(grant.tools ?? [], config))
    io.stderr(`warning: ${printable(warning)}\n`);
  const verb = grant.kind === 'deny' ? 'Denied' : 'Granted';
  printResult(
    { io, options },
    { grant },
    printable(
      `${verb} ${describe(grant)}, until ${until(grant) || 'revoked'}. ` +
        `Withdraw it with: tollgate grants revoke ${shortId(grant)}`,
    ),
  );
  return EXIT.ok;
}

/** Revokes a grant by its id, or by the beginning of it. Throws as `runGrantAdd`. */
export async function runGrantRevoke(options: GrantOptions & { readonly id: string }, io: Io): Promise<number> {
  const { config, by } = readDecider(options, 'grants', io);
  const grant = await withGrants({ config, io }, async (all) =>
    all.revoke(grantNamed(await all.list(), options.id).id, by),
  );
  printResult({ io, options }, { grant }, `Revoked: ${printable(describe(grant))}. It no longer applies to any call.`);
  return EXIT.ok;
}

/** Prints whether a scope is granted, and answers by the exit code too. Throws CONFIG_INVALID, USAGE, STATE_FAILED. */
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
  else {
    const answer = found.code === 'DENIED' ? 'denied' : 'not granted: no owner has decided';
    const by = found.grant === undefined ? '' : ` by ${shortId(found.grant)}`;
    io.stdout(`${found.granted ? 'granted' : answer}${by}\n`);
  }
  if (found.granted) return EXIT.ok;
  return found.code === 'DENIED' ? EXIT.refused : EXIT.approval;
}

function withGrants<T>(
  { config, io }: { readonly config: Config; readonly io: Io },
  work: (grants: Grants) => Promise<T> | T,
): Promise<T> {
  return withDecisions(config, io, ({ state, append }) => work(new Grants({ state, now: Date.now, append })));
}

function readProfile(config: Config, { profile = 'default' }: GrantOptions): string {
  if (!config.profiles.has(profile))
    throw new TollgateError('USAGE', {
      detail: `There is no profile ${printable(profile)}.`,
      next: `The profiles are ${[...config.profiles.keys()].join(', ')}.`,
    });
  return profile;
}

/** Returns when a grant expires; '' if it is valid until it is revoked. */
function until({ expiresAt, session, tab }: Grant): string {
  const parts = [
    ...(expiresAt === undefined ? [] : [`${new Date(expiresAt).toISOString().slice(0, 19)}Z`]),
    ...(session === undefined ? [] : [`session ${session}`]),
    ...(tab === undefined ? [] : [`tab ${tab}`]),
  ];
  return parts.join(', ');
}

function describe({ scope, origin, profile, tools }: Grant): string {
  const forTools = tools === undefined ? '' : ` for ${plural(tools.length, 'tool')}`;
  return `${scope} to ${origin} with profile ${profile}${forTools}`;
}

/** Returns the first digits of an id, without `grant_`. `grants revoke` accepts them. */
function shortId({ id }: Pick<Grant, 'id'>): string {
  return id.slice(PREFIX.length, PREFIX.length + SHORT_DIGITS);
}

/**
 * Returns the grant with an id, or with the beginning of an id that fits no other, with or without `grant_`. Throws
 * USAGE.
 */
function grantNamed(grants: readonly Grant[], id: string): Grant {
  const start = id.startsWith(PREFIX) ? id : `${PREFIX}${id}`;
  const found = start === PREFIX ? [] : grants.filter((grant) => grant.id.startsWith(start));
  const [one] = found;
  if (one !== undefined && found.length === 1) return one;
  throw new TollgateError('USAGE', {
    detail:
      found.length === 0
        ? `There is no grant with the id ${printable(id)}.`
        : `${printable(id)} is the beginning of ${found.length} grants. Give more characters.`,
    next: '`tollgate grants list` shows all of them.',
  });
}

/**
 * Returns a line for each name that fits no known tool. The tool may exist later, so it is granted nevertheless. Throws
 * STATE_FAILED.
 */
async function unknownToolWarnings(tools: readonly string[], config: Config): Promise<readonly string[]> {
  return withState(config, async (state) => {
    const approved = new ApprovedTools(state);
    const servers = [WORKSPACE, ...SHIPPED.keys(), ...config.servers.keys()];
    const lines: string[] = [];
    for (const written of tools.filter((tool) => tool.includes('.'))) {
      const dot = written.indexOf('.');
      const [server, tool] = [written.slice(0, dot), written.slice(dot + 1)];
      const names = await approved.names(server);
      if (names === undefined && !servers.includes(server))
        lines.push(`There is no server ${quote(server)} yet; ${didYouMean(server, servers)}`);
      else if (names !== undefined && tool !== '*' && !names.includes(tool))
        lines.push(`No approved tool of ${server} is called ${quote(tool)}; ${didYouMean(tool, names)}`);
    }
    return lines;
  });
}

/** Options of the grants commands. */
export interface GrantOptions extends OwnerOptions {
  readonly profile?: string;
  readonly tools?: string;
  readonly session?: string;
  readonly tab?: string;
}
