/**
 * The names under which tools are shown: legal for every provider, stable, reversible. A name that could mean two tools
 * is refused.
 */

import { createHash } from 'node:crypto';
import { groupBy } from '../text/collections.ts';

/** Legal for OpenAI, Anthropic, Gemini, Bedrock and Mistral. */
const LEGAL = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** Names that Tollgate makes: snake_case of at most 40 characters (CY-04). */
const MAX_MADE = 40;

/** A tool to be shown; `wanted` is its alias from policy or configuration. */
export interface ExposableTool {
  readonly server: string;
  readonly tool: string;
  readonly alias?: string;
}

/** Tools to which an owner gave one name; none of them is shown. A single tool wants one of Tollgate's own names. */
export interface NameCollision {
  readonly name: string;
  readonly tools: readonly { readonly server: string; readonly tool: string }[];
}

/** The names that are shown and those that are refused. */
export interface ExposedNames {
  /** Shown name → what it calls. */
  readonly names: ReadonlyMap<string, { readonly server: string; readonly tool: string }>;
  /** The same, from the tool as it was given; a tool that is not shown is missing. */
  readonly nameOf: ReadonlyMap<ExposableTool, string>;
  readonly collisions: readonly NameCollision[];
}

interface Claim {
  readonly tool: ExposableTool;
  readonly name: string;
  readonly kind: 'alias' | 'plain' | 'slug';
}

/**
 * Returns the shown name of every tool, independent of the order of the list. Without alias it is `server_tool` if
 * that is legal (a server's name contains no underscore, so it cannot be forged), otherwise a slug with a hash of both
 * names. Names that differ only by case or by hyphen and underscore count as the same, because they would shadow each
 * other. Tools whose `server_tool` is claimed by another are all shown by their slug, so that none of them has the
 * plain name. An alias keeps its name; tools with the same alias are not shown. `reserved` names are shown for no
 * tool.
 */
export function exposedNames(tools: readonly ExposableTool[], reserved: readonly string[] = []): ExposedNames {
  const kept = new Set(reserved.map(fold));
  // The second pass moves names that equal a slug of the first.
  const groups = claimsByName(slugContested(slugContested(tools.map(claimOf), kept), kept));
  const names = new Map<string, { readonly server: string; readonly tool: string }>();
  const nameOf = new Map<ExposableTool, string>();
  const collisions: NameCollision[] = [];
  for (const [folded, group] of groups) {
    const [first] = group;
    if (first === undefined) continue;
    if (group.length === 1 && !kept.has(folded)) {
      names.set(first.name, { server: first.tool.server, tool: first.tool.tool });
      nameOf.set(first.tool, first.name);
    } else
      collisions.push({
        name: group.map(({ name }) => name).sort()[0] ?? first.name,
        tools: group.map(({ tool }) => ({ server: tool.server, tool: tool.tool })).sort(byId),
      });
  }
  return { names, nameOf, collisions: collisions.sort((left, right) => (left.name < right.name ? -1 : 1)) };
}

function claimOf(tool: ExposableTool): Claim {
  if (tool.alias !== undefined && LEGAL.test(tool.alias)) return { tool, name: tool.alias, kind: 'alias' };
  const joined = `${tool.server}_${tool.tool}`;
  return LEGAL.test(joined)
    ? { tool, name: joined, kind: 'plain' }
    : { tool, name: slug(tool.server, tool.tool), kind: 'slug' };
}

function claimsByName(claims: readonly Claim[]): ReadonlyMap<string, readonly Claim[]> {
  return groupBy(claims, ({ name }) => fold(name));
}

function slugContested(claims: readonly Claim[], kept: ReadonlySet<string>): readonly Claim[] {
  const groups = claimsByName(claims);
  return claims.map((claim): Claim => {
    const folded = fold(claim.name);
    const isContested = kept.has(folded) || (groups.get(folded)?.length ?? 0) > 1;
    return isContested && claim.kind === 'plain'
      ? { tool: claim.tool, name: slug(claim.tool.server, claim.tool.tool), kind: 'slug' }
      : claim;
  });
}

/** Returns the shown name of one tool without competitors: its alias if that is legal. */
export function shownName(tool: ExposableTool): string {
  return claimOf(tool).name;
}

/** Returns the shown name of one tool without alias and without competitors. */
export function exposedName(server: string, tool: string): string {
  return claimOf({ server, tool }).name;
}

/**
 * Returns the tool for a name as a model wrote it: exact, else the only one that differs by hyphens and underscores.
 */
export function findExposed<T>(
  names: ReadonlyMap<string, T>,
  name: string,
): { readonly name: string; readonly value: T } | undefined {
  const exact = names.get(name);
  if (exact !== undefined) return { name, value: exact };
  const alike = [...names].filter(([known]) => known.replaceAll('-', '_') === name.replaceAll('-', '_'));
  const [only] = alike;
  return alike.length === 1 && only !== undefined ? { name: only[0], value: only[1] } : undefined;
}

function slug(server: string, tool: string): string {
  const hash = createHash('sha256').update(`${server}\0${tool}`).digest('hex').slice(0, 8);
  const words = `${server}_${tool}`
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .replace(/^_+|_+$/g, '')
    .slice(0, MAX_MADE - 9)
    .replace(/_+$/, '');
  return `${/^[a-z]/.test(words) ? words : `t_${words}`.slice(0, MAX_MADE - 9)}_${hash}`;
}

function fold(name: string): string {
  return name.toLowerCase().replaceAll('-', '_');
}

function byId(
  left: { readonly server: string; readonly tool: string },
  right: { readonly server: string; readonly tool: string },
): number {
  return `${left.server}\0${left.tool}` < `${right.server}\0${right.tool}` ? -1 : 1;
}
