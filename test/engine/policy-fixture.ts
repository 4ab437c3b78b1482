/** What every test of the policy starts from: a small configuration, calls, and policies made of rules. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readUrl } from '../../catalogs/readers/urls.ts';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import type { PolicyParts, SourceSettings } from '../../policies/engine/compiled-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallInput, Effect, ListTool, PlanState, Policy, Principal } from '../../policies/port.ts';
import type { PolicySettings, ProfileSettings } from '../../policies/rules/policy-settings.ts';
import type { YamlRuleDocument } from '../../policies/rules/rule-compiler.ts';

export const WORKSPACE = '/home/me/project';

export const PRINCIPAL: Principal = {
  id: 'mia',
  role: 'developer',
  groups: ['staff', 'web'],
  profiles: ['work'],
  origin: 'editor',
};

export function profile(over: Partial<ProfileSettings> = {}): ProfileSettings {
  return {
    name: 'work',
    servers: ['git', 'mail'],
    primitives: {
      read: [{ server: 'workspace' }],
      write: [{ server: 'workspace' }],
      edit: [{ server: 'workspace' }],
      bash: [{ server: 'workspace' }],
    },
    expose: [],
    budgets: [],
    caps: {},
    ...over,
  };
}

export function settings(over: Partial<PolicySettings> = {}): PolicySettings {
  return {
    servers: [{ name: 'git' }, { name: 'mail' }],
    profiles: [profile()],
    budgets: [],
    caps: {},
    schemaProfile: 'portable',
    ...over,
  };
}

/** A document of rules. The places are the numbers of the rules, from 1. */
export function documentOf(rules: readonly unknown[], over: Partial<YamlRuleDocument> = {}): YamlRuleDocument {
  return {
    file: 'rules.yaml',
    mode: 'enforce',
    value: { rules },
    placeOf: (at) => ({ line: Number(at[1] ?? 0) + 1, column: 1 }),
    ...over,
  };
}

export function parts(over: Partial<PolicyParts> = {}): PolicyParts {
  const folder = over.folder ?? scratch();
  return {
    settings: settings(),
    workspace: WORKSPACE,
    folder,
    cache: path.join(folder, 'cache'),
    rules: [],
    sources: [],
    readYaml,
    ...over,
  };
}

export function policyOf(rules: readonly unknown[], over: Partial<PolicyParts> = {}): Promise<Policy> {
  return loadPolicy(parts({ rules: [documentOf(rules)], ...over }));
}

/** Makes a folder with these files, for Rego sources. */
export function scratch(files: Readonly<Record<string, string>> = {}): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-policy-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
  return folder;
}

export function regoSource(file: string, mode: SourceSettings['mode'] = 'enforce'): SourceSettings {
  return { path: file, kind: 'rego', mode };
}

/** The facts of a call, in a short form. */
export interface CallOf extends Partial<Omit<Effect, 'paths' | 'urls' | 'command'>> {
  readonly inside?: readonly string[];
  readonly outside?: readonly string[];
  readonly hosts?: readonly string[];
  readonly urls?: readonly string[];
  readonly plan?: PlanState;
  /** Simple commands, or `opaque` for a command that cannot be read. */
  readonly commands?: readonly (readonly string[])[] | 'opaque' | undefined;
  /** Whether a program of `commands` starts others. */
  readonly starts?: boolean | undefined;
  readonly args?: unknown;
  readonly argsText?: string;
  readonly labels?: readonly string[];
  readonly principal?: Partial<Principal>;
  readonly time?: string;
}

export function callOf(call: CallOf = {}): CallInput {
  const {
    inside = [],
    outside = [],
    hosts = [],
    urls = [],
    plan,
    commands,
    starts = false,
    args = {},
    argsText,
    labels = [],
    principal,
    time = '2026-11-20T10:00:00Z',
    ...effect
  } = call;
  const facts = [
    ...inside.map((at) => ({ argument: 'path', path: at, inside: true })),
    ...outside.map((at) => ({ argument: 'path', path: at, inside: false })),
  ];
  const command =
    commands === 'opaque'
      ? { text: '$X', opaque: true, words: [] }
      : { text: (commands ?? []).map((words) => words.join(' ')).join('; '), opaque: starts, words: commands ?? [] };
  return {
    principal: { ...PRINCIPAL, ...principal },
    run: 'run-1',
    effect: {
      verb: 'read',
      server: 'git',
      tool: 'status',
      ...effect,
      paths: facts,
      urls: [
        ...hosts.map((host) => ({
          argument: 'url',
          url: `https://${host}/`,
          scheme: host === '' ? '' : 'https',
          host,
          address: host === '' ? '' : `https://${host}:443/`,
        })),
        ...urls.map((url) => ({ argument: 'url', url, ...readUrl(url) })),
      ],
      ...(commands === undefined ? {} : { command }),
    },
    argsText: argsText ?? JSON.stringify(args),
    labels,
    time,
    ...(plan === undefined ? {} : { plan }),
  };
}

export function toolOf(over: Partial<ListTool> = {}): ListTool {
  return { server: 'git', tool: 'status', verb: 'read', ...over };
}

/** Returns the problems of a refused load, as `file:line:col: message`. */
export async function problemsOf(load: Promise<unknown>): Promise<readonly string[]> {
  const thrown = await load.then(
    () => undefined,
    (error: unknown) =>
      error as {
        code?: string;
        message: string;
        data?: { problems?: readonly { file: string; line: number; column: number; message: string }[] };
      },
  );
  if (thrown?.code !== 'POLICY_INVALID') throw new Error(`not refused: ${String(thrown?.message)}`);
  return (thrown.data?.problems ?? []).map(
    ({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`,
  );
}
