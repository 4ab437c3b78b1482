/** Owns the way from the configuration's plain data to the data of the library; knows nothing of rules or of files. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { Verb } from '../../catalogs/tools/tool-definition.ts';
import type { BudgetObligation, Exposure } from '../port.ts';
import type { RuleCondition } from './argument-tests.ts';
import { compileTarget, formsOf, setOf, type Trust } from './rule-conditions.ts';
import { addText, nullMap, PatternError, type PatternForms, splitTool } from './rule-patterns.ts';

/** Servers of Tollgate itself, which no configuration lists. */
export const INTERNAL_SERVERS: readonly string[] = ['workspace', ...SHIPPED.keys()];

/** What the policy needs of a server's entry in the configuration. */
export interface PolicyServerSettings {
  readonly name: string;
  readonly tools?: { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
  readonly labels?: readonly string[];
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  /** Default external. */
  readonly trust?: Trust;
  /** Tools of high risk, with the words that a list says of them; see lib/gate.rego. */
  readonly gated?: Readonly<Record<string, readonly string[]>>;
}

/** `server.tool`, where the tool part may hold `*`; the rest is how the tool is shown. */
export interface ExposeSettings extends Exposure {
  readonly tool: string;
}

/** A budget with what narrows it; `when.tool` is a `server.tool` pattern, or a tool's name on any server. */
export interface BudgetSettings extends BudgetObligation {
  readonly when: {
    readonly server?: string;
    readonly tool?: string;
    readonly verb?: Verb;
    readonly role?: string;
    readonly profile?: string;
  };
}

/** Caps that a decision hands on; others of the configuration are the facade's own. */
export interface CapsSettings {
  readonly bytes?: number;
  readonly lines?: number;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
}

/** A profile; stacked profiles are merged by lib/principal.rego, not here. */
export interface ProfileSettings {
  readonly name: string;
  readonly servers: readonly string[];
  /** The servers of each; which of them serves a call is the facade's own. */
  readonly primitives: Readonly<
    Partial<Record<'read' | 'write' | 'edit' | 'bash', readonly { readonly server: string }[]>>
  >;
  readonly expose: readonly ExposeSettings[];
  readonly budgets: readonly BudgetSettings[];
  readonly caps: CapsSettings;
  readonly schemaProfile?: string;
  /** Only reading runs until the plan of the run is approved (CY-27). */
  readonly plan?: boolean;
}

/** Who may call, as far as rules ask; `client` is the origin of its calls without an Origin header. */
export interface PrincipalSettings {
  readonly id: string;
  readonly role: string;
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
  readonly client: string;
}

/** The part of the configuration that becomes data, and the names that rules are checked against. */
export interface PolicySettings {
  /** Absent: names of callers in rules are not checked. */
  readonly principals?: readonly PrincipalSettings[];
  /** Origins of pages that may call, beside those of the machine itself. */
  readonly origins?: readonly string[];
  readonly servers: readonly PolicyServerSettings[];
  readonly profiles: readonly ProfileSettings[];
  readonly budgets: readonly BudgetSettings[];
  readonly caps: CapsSettings;
  readonly schemaProfile: string;
}

/** `data.config` without rules, modes and places. Throws POLICY_INVALID for a pattern that cannot be meant. */
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
  return {
    labels: labels ?? [],
    ...(trust === undefined ? {} : { trust }),
    ...(gated === undefined ? {} : { gated }),
    ...(tools?.allow === undefined ? {} : { allow: textForms(tools.allow) }),
    ...(tools?.deny === undefined ? {} : { deny: textForms(tools.deny) }),
    ...(validateOutput === undefined ? {} : { validateOutput }),
  };
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
    ...(profile.schemaProfile === undefined ? {} : { schemaProfile: profile.schemaProfile }),
    ...(profile.plan === true ? { plan: true } : {}),
  };
}

function compileExposures(rules: readonly ExposeSettings[]): unknown {
  const exact = nullMap<unknown[]>();
  const patterns = nullMap<unknown[]>();
  for (const { tool: pattern, ...rest } of rules) {
    const [server, tool] = splitTool(pattern);
    if (server.includes('*'))
      throw new PatternError(`"${pattern}" is exposed without a server's name: only the tool part may hold *`);
    const show: Exposure = rest;
    if (pattern.includes('*')) (patterns[server] ??= []).push({ tool: formsOf(tool, addText), show });
    else (exact[pattern] ??= []).push(show);
  }
  return { exact, patterns };
}

function compileBudget({ when, ...limit }: BudgetSettings): unknown {
  const { server, tool, verb, role, profile } = when;
  const principal: RuleCondition[] = [];
  if (role !== undefined) principal.push({ of: 'role', any: setOf([role]) });
  if (profile !== undefined) principal.push({ of: 'profile', any: setOf([profile]) });
  const named = tool?.split('.', 1)[0] ?? '';
  if (server !== undefined && tool?.includes('.') === true && !named.includes('*') && named !== server)
    throw new PatternError(`"${tool}" can never match: the budget is about the server ${server}`);
  const target = compileTarget(
    {
      ...(server === undefined ? {} : { servers: [server] }),
      ...(verb === undefined ? {} : { verbs: [verb] }),
      ...(tool === undefined || tool === '*' ? {} : { tools: [tool.includes('.') ? tool : `*.${tool}`] }),
    },
    (_path, message) => {
      throw new PatternError(message);
    },
  );
  return { limit, principal, target };
}

function pickCaps({ bytes, lines, validateOutput }: CapsSettings): CapsSettings {
  return {
    ...(bytes === undefined ? {} : { bytes }),
    ...(lines === undefined ? {} : { lines }),
    ...(validateOutput === undefined ? {} : { validateOutput }),
  };
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
