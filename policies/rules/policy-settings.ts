/** Compiles the configuration (servers, profiles, budgets, caps) to the data of the library. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
import type { Verb } from '../../catalogs/tools/tool-definition.ts';
import type { BudgetObligation, EffectKind, Exposure, Principal } from '../port.ts';
import type { RuleCondition } from './argument-tests.ts';
import { compileTarget, formsOf, setOf, type Trust, type When } from './rule-conditions.ts';
import { addText, nullMap, PatternError, type PatternForms, splitTool } from './rule-patterns.ts';

/** Tollgate's own servers. No configuration lists them. */
export const INTERNAL_SERVERS: readonly string[] = ['workspace', ...SHIPPED.keys()];

/** The part of a server's configuration that the policy needs. */
interface PolicyServerSettings {
  readonly name: string;
  readonly tools?: { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
  readonly labels?: readonly string[];
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  /** Default external. */
  readonly trust?: Trust;
  /** Tools of high risk, with the words that a list shows for them; see lib/gate.rego. */
  readonly gated?: Readonly<Record<string, readonly string[]>>;
}

/** How a tool is shown. `tool` is `server.tool`; only the tool part may contain `*`. */
interface ExposeSettings extends Exposure {
  readonly tool: string;
}

/**
 * A budget and the calls that it is about. `when.tool` is a `server.tool` pattern, or the name of a tool on any server.
 */
export interface BudgetSettings extends BudgetObligation {
  readonly when: {
    /** One kind or a list. The schema of tollgate.yaml has checked the words. */
    readonly kind?: string | readonly EffectKind[];
    readonly server?: string;
    readonly tool?: string;
    readonly verb?: Verb;
    readonly role?: string;
    readonly profile?: string;
  };
}

/** Caps that a decision passes on. The facade applies the other caps of the configuration itself. */
interface CapsSettings {
  readonly bytes?: number;
  readonly lines?: number;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
}

/** A profile. lib/principal.rego merges the profiles of a principal. */
export interface ProfileSettings {
  readonly name: string;
  readonly servers: readonly string[];
  /** The servers of each primitive. The facade decides which of them serves a call. */
  readonly primitives: Readonly<
    Partial<Record<'read' | 'write' | 'edit' | 'bash', readonly { readonly server: string }[]>>
  >;
  readonly expose: readonly ExposeSettings[];
  readonly budgets: readonly BudgetSettings[];
  readonly caps: CapsSettings;
  readonly schemaProfile?: string;
  /** Until the plan of the run is approved, only calls with the verb `read` run (CY-27). */
  readonly plan?: boolean;
}

/** A caller, as far as rules can read it. `client` is the origin of its calls without an Origin header. */
export interface PrincipalSettings extends Pick<Principal, 'id' | 'role' | 'groups' | 'profiles'> {
  readonly client: string;
}

/** The callers that tokens of an issuer make, as far as rules can name them. Their ids begin with `idPrefix`. */
export interface SubjectSettings {
  readonly idPrefix: string;
  readonly roles: readonly string[];
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
}

/** The part of the configuration that the policy uses. */
export interface PolicySettings {
  /** Absent: the names of callers in rules are not checked. */
  readonly principals?: readonly PrincipalSettings[];
  /** Callers besides the principals. Absent: none. */
  readonly subjects?: SubjectSettings;
  /** Origins of web pages that may call, in addition to pages of this machine. */
  readonly origins?: readonly string[];
  readonly servers: readonly PolicyServerSettings[];
  readonly profiles: readonly ProfileSettings[];
  readonly budgets: readonly BudgetSettings[];
  readonly caps: CapsSettings;
  readonly schemaProfile: string;
}

/**
 * Returns `data.config` without rules, modes and places. Throws POLICY_INVALID for a pattern that cannot match as
 * written.
 */
export function compileSettings(settings: PolicySettings): Readonly<Record<string, unknown>> {
  try {
    return compileAll(settings);
  } catch (thrown) {
    if (thrown instanceof PatternError)
      throw new TollgateError('POLICY_INVALID', { detail: `${thrown.message}.`, cause: thrown });
    throw thrown;
  }
}

function compileAll(settings: PolicySettings): Readonly<Record<string, unknown>> {
  return {
    caps: pickCaps(settings.caps),
    schemaProfile: settings.schemaProfile,
    budgets: settings.budgets.map(compileBudget),
    servers: byName(
      [...INTERNAL_SERVERS.map((name) => ({ name, trust: 'internal' as const })), ...settings.servers],
      compileServer,
    ),
    profiles: byName(settings.profiles, compileProfile),
  };
}

function compileServer({ tools, labels, validateOutput, trust, gated }: PolicyServerSettings): unknown {
  const [allow, deny] = [tools?.allow, tools?.deny].map((patterns) => patterns && textForms(patterns));
  return definedFields({ labels: labels ?? [], trust, gated, allow, deny, validateOutput });
}

function compileProfile(profile: ProfileSettings): unknown {
  return {
    servers: profile.servers,
    primitives: Object.fromEntries(
      Object.entries(profile.primitives).map(([name, routes]) => [
        name,
        [...new Set(routes.map(({ server }) => server))],
      ]),
    ),
    caps: pickCaps(profile.caps),
    budgets: profile.budgets.map(compileBudget),
    expose: compileExposures(profile.expose),
    ...definedFields({ schemaProfile: profile.schemaProfile, plan: profile.plan || undefined }),
  };
}

function compileExposures(rules: readonly ExposeSettings[]): unknown {
  const exact = nullMap<unknown[]>();
  const patterns = nullMap<unknown[]>();
  for (const { tool: pattern, ...rest } of rules) {
    const [server, tool] = splitTool(pattern);
    if (server.includes('*'))
      throw new PatternError(`"${pattern}" does not name a server: in \`expose\`, only the tool part may contain *`);
    const show: Exposure = rest;
    if (pattern.includes('*')) (patterns[server] ??= []).push({ tool: formsOf(tool, addText), show });
    else (exact[pattern] ??= []).push(show);
  }
  return { exact, patterns };
}

function compileBudget({ when, ...limit }: BudgetSettings): unknown {
  const { kind, server, tool, verb, role, profile } = when;
  const principal: RuleCondition[] = [];
  if (role !== undefined) principal.push({ of: 'role', any: setOf([role]) });
  if (profile !== undefined) principal.push({ of: 'profile', any: setOf([profile]) });
  const named = tool?.split('.', 1)[0] ?? '';
  if (server !== undefined && tool?.includes('.') === true && !named.includes('*') && named !== server)
    throw new PatternError(`"${tool}" can never match: the budget is about the server ${server}`);
  const tools = tool === undefined || tool === '*' ? undefined : [tool.includes('.') ? tool : `*.${tool}`];
  const target = compileTarget(
    definedFields({
      kind: kind as When['kind'],
      servers: server === undefined ? undefined : [server],
      verbs: verb && [verb],
      tools,
    }),
    (_path, message) => {
      throw new PatternError(message);
    },
  );
  return { limit, principal, target };
}

function pickCaps({ bytes, lines, validateOutput }: CapsSettings): CapsSettings {
  return definedFields({ bytes, lines, validateOutput });
}

function textForms(patterns: readonly string[]): PatternForms {
  const forms: PatternForms = {};
  for (const pattern of patterns) addText(forms, pattern);
  return forms;
}

function byName<T extends { readonly name: string }>(
  all: readonly T[],
  compile: (one: T) => unknown,
): Record<string, unknown> {
  const named = nullMap<unknown>();
  for (const one of all) named[one.name] = compile(one);
  return named;
}
