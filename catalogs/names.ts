/** Owns the names under which tools are shown: legal for every provider, stable, reversible; refuses collisions, both sides. */
import { createHash } from 'node:crypto';

/** Legal for OpenAI, Anthropic, Gemini, Bedrock and Mistral alike (schema-primitives A1). */
const LEGAL = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** Names that Tollgate makes: snake_case of at most 40 characters (CY-04). */
const MAX_MADE = 40;

/** A tool to be shown; `wanted` is the alias that policy or configuration gives it. */
export interface NamedTool {
  readonly server: string;
  readonly tool: string;
  readonly wanted?: string;
}

/** Tools that want one name; none of them is shown. One tool alone wants a name of Tollgate's own. */
export interface NameCollision {
  readonly name: string;
  readonly tools: readonly { readonly server: string; readonly tool: string }[];
}

/** The names that are shown and those that are refused. */
export interface ExposedNames {
  /** Shown name → what it calls. */
  readonly names: ReadonlyMap<string, { readonly server: string; readonly tool: string }>;
  readonly collisions: readonly NameCollision[];
}

/**
 * The shown name of every tool, whatever the order of the list. Without alias it is `server_tool` where that is legal
 * (a server's name holds no underscore, so it cannot be forged), else a slug with a hash of both names. Names that
 * differ only by case or by hyphen and underscore count as the same: they would shadow each other (security 13).
 * `reserved` names are shown for no tool.
 */
export function exposedNames(tools: readonly NamedTool[], reserved: readonly string[] = []): ExposedNames {
  const groups = new Map<string, { readonly name: string; readonly tool: NamedTool }[]>();
  for (const tool of tools) {
    const name = shownName(tool);
    const group = groups.get(fold(name));
    if (group === undefined) groups.set(fold(name), [{ name, tool }]);
    else group.push({ name, tool });
  }
  const names = new Map<string, { readonly server: string; readonly tool: string }>();
  const collisions: NameCollision[] = [];
  const kept = new Set(reserved.map(fold));
  for (const [folded, group] of groups) {
    const targets = group.map(({ tool }) => ({ server: tool.server, tool: tool.tool }));
    const [first] = group;
    if (first === undefined) continue;
    if (group.length === 1 && !kept.has(folded)) names.set(first.name, { server: first.tool.server, tool: first.tool.tool });
    else collisions.push({ name: group.map(({ name }) => name).sort()[0] ?? first.name, tools: targets.sort(byId) });
  }
  return { names, collisions: collisions.sort((left, right) => (left.name < right.name ? -1 : 1)) };
}

/** The shown name of one tool: its alias where that is legal. */
export function shownName(tool: NamedTool): string {
  return tool.wanted !== undefined && LEGAL.test(tool.wanted) ? tool.wanted : exposedName(tool.server, tool.tool);
}

/** The shown name of one tool without alias. */
export function exposedName(server: string, tool: string): string {
  const joined = `${server}_${tool}`;
  return LEGAL.test(joined) ? joined : slug(server, tool);
}

/** The tool behind a name as a model wrote it: exact, else the only one that differs by hyphens and underscores. */
export function findExposed<T>(names: ReadonlyMap<string, T>, name: string): { readonly name: string; readonly value: T } | undefined {
  const exact = names.get(name);
  if (exact !== undefined) return { name, value: exact };
  const alike = [...names].filter(([known]) => known.replaceAll('-', '_') === name.replaceAll('-', '_'));
  const [only] = alike;
  return alike.length === 1 && only !== undefined ? { name: only[0], value: only[1] } : undefined;
}

function slug(server: string, tool: string): string {
  const hash = createHash('sha256').update(`${server}\0${tool}`).digest('hex').slice(0, 8);
  const words = `${server}_${tool}`.toLowerCase().replace(/[^a-z0-9]+/g, '_').replace(/^_+|_+$/g, '').slice(0, MAX_MADE - 9).replace(/_+$/, '');
  return `${/^[a-z]/.test(words) ? words : `t_${words}`.slice(0, MAX_MADE - 9)}_${hash}`;
}

function fold(name: string): string {
  return name.toLowerCase().replaceAll('-', '_');
}

function byId(left: { readonly server: string; readonly tool: string }, right: { readonly server: string; readonly tool: string }): number {
  return `${left.server}\0${left.tool}` < `${right.server}\0${right.tool}` ? -1 : 1;
}
