/**
 * Applies grants to lists and calls. A grant never overrides a deny of the policy, and applies to its own origin and
 * profile only.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { memoize } from '../../../catalogs/text/collections.ts';
import type { Principal } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import {
  type CallPreconditions,
  NO_PRECONDITIONS,
  OPEN_VIEW,
  type Precondition,
  type PreconditionCall,
} from '../preconditions.ts';
import {
  evaluateGrants,
  findAnsweringGrant,
  type Grant,
  type GrantAnswer,
  type GrantQuery,
  grantAppliesTo,
} from './grant.ts';

/** The parts that the precondition uses. `isAsleep`: the next call of this server would start it. */
export interface GrantPrecondition {
  readonly profiles: Config['profiles'];
  readonly grantsOf: (origin: string) => readonly Grant[];
  readonly isAsleep: (server: string) => boolean;
}

type Scope = 'mcp:tools.list' | 'mcp:tools.call' | 'mcp:server.connect';
type Tool = NonNullable<GrantQuery['tool']>;

/** Returns the precondition for grants (HB-02). */
export function grantPrecondition({ profiles, grantsOf, isAsleep }: GrantPrecondition): Precondition {
  const required = memoize((principal: Principal): readonly string[] =>
    principal.profiles.filter((name) => profiles.get(name)?.grants === 'required'),
  );
  return {
    view: (principal, from) => {
      const grants = grantsOf(principal.origin);
      const demanding = required(principal);
      if (grants.length === 0 && demanding.length === 0) return OPEN_VIEW;
      const ask = asker({ grants, profiles: principal.profiles, demanding, from });
      const listing = ask('mcp:tools.list');
      return {
        revision: JSON.stringify([
          demanding,
          grants
            .filter((grant) => grantAppliesTo(grant, from))
            .map(({ id }) => id)
            .sort(),
        ]),
        hides: () => false,
        ...(listing.kind !== 'allow' && {
          unlisted: refusal({ weighed: listing, scope: 'mcp:tools.list', principal }),
        }),
        withholds: (tool) => isClosed(ask('mcp:tools.call', tool)) || ask('mcp:server.connect', tool).kind === 'deny',
        mayStart: (server) => ask('mcp:server.connect', { server, tool: '' }).kind === 'allow',
      };
    },
    judge: ({ caller, effect }: PreconditionCall): Partial<CallPreconditions> => {
      const { principal, session } = caller;
      const grants = grantsOf(principal.origin);
      const demanding = required(principal);
      if (grants.length === 0 && demanding.length === 0) return NO_PRECONDITIONS;
      const ask = asker({ grants, profiles: principal.profiles, demanding, from: session });
      const connecting = ask('mcp:server.connect', effect);
      if (connecting.kind === 'deny' || (connecting.kind !== 'allow' && isAsleep(effect.server)))
        throw refusal({ weighed: connecting, scope: 'mcp:server.connect', principal, tool: effect });
      const calling = ask('mcp:tools.call', effect);
      if (calling.kind !== 'allow')
        throw refusal({ weighed: calling, scope: 'mcp:tools.call', principal, tool: effect });
      const [answer] = principal.profiles.flatMap(
        (profile) =>
          findAnsweringGrant(grants, { profile, scope: 'mcp:tools.call', tool: effect, from: session }) ?? [],
      );
      return answer === undefined ? {} : { grant: answer.id };
    },
  };
}

/** Returns the answer to a host that asks whether something is granted. `code` says why not. */
export function checkGrants(
  grants: readonly Grant[],
  {
    profiles,
    scope,
    tool,
    from,
  }: { profiles: readonly string[]; scope: string; tool?: string; from?: GrantQuery['from'] },
): { readonly granted: boolean; readonly code?: 'APPROVAL_REQUIRED' | 'DENIED'; readonly grant?: Grant } {
  const dot = tool?.indexOf('.') ?? 0;
  const named = tool === undefined ? undefined : { server: tool.slice(0, dot), tool: tool.slice(dot + 1) };
  const weighed = asker({ grants, profiles, demanding: profiles, from })(scope, named);
  if ('grant' in weighed)
    return weighed.kind === 'allow'
      ? { granted: true, grant: weighed.grant }
      : { granted: false, code: 'DENIED', grant: weighed.grant };
  return { granted: false, code: weighed.kind === 'uncovered' ? 'DENIED' : 'APPROVAL_REQUIRED' };
}

/**
 * Returns a function that answers for a scope. A deny of any profile wins, then the worst answer of the profiles that
 * require grants.
 */
function asker({
  grants,
  profiles,
  demanding,
  from,
}: {
  grants: readonly Grant[];
  profiles: readonly string[];
  demanding: readonly string[];
  from: GrantQuery['from'];
}): (scope: string, tool?: Tool) => GrantAnswer | { readonly kind: 'allow' } {
  return (scope, tool) => {
    const weighed = profiles.map((profile) => ({
      profile,
      answer: evaluateGrants(grants, {
        profile,
        scope,
        ...(tool !== undefined && { tool }),
        ...(from !== undefined && { from }),
      }),
    }));
    const deny = weighed.find(({ answer }) => answer.kind === 'deny');
    if (deny !== undefined) return deny.answer;
    const missing = weighed.filter(({ profile, answer }) => demanding.includes(profile) && answer.kind !== 'allow');
    const worst = missing.find(({ answer }) => answer.kind === 'uncovered') ?? missing[0];
    return (worst ?? weighed.find(({ answer }) => answer.kind === 'allow'))?.answer ?? { kind: 'allow' };
  };
}

/** A tool that a grant denies is hidden. A tool without a decision is shown, because a caller can ask for it. */
function isClosed({ kind }: { readonly kind: GrantAnswer['kind'] }): boolean {
  return kind === 'deny' || kind === 'uncovered';
}

function refusal({
  weighed,
  scope,
  principal,
  tool,
}: {
  weighed: GrantAnswer | { readonly kind: 'allow' };
  scope: Scope;
  principal: Principal;
  tool?: Tool;
}): TollgateError {
  const { origin } = principal;
  const named =
    tool === undefined
      ? ''
      : ` for ${scope === 'mcp:server.connect' ? `${tool.server}.*` : `${tool.server}.${tool.tool}`}`;
  const data = { scope, origin };
  if (weighed.kind === 'none') {
    return new TollgateError('APPROVAL_REQUIRED', {
      detail: `No one has granted ${scope} to ${origin}${named}.`,
      next: 'An owner grants it with `tollgate grants add` or through the host; tell the user.',
      data,
    });
  }
  const why =
    weighed.kind === 'deny'
      ? `${scope} is denied to ${origin}${named}.`
      : `The grant of ${scope} to ${origin} does not apply${named}.`;
  return new TollgateError('DENIED', {
    detail: why,
    next: 'Do not repeat it. Choose another tool, or ask the user.',
    data,
  });
}
