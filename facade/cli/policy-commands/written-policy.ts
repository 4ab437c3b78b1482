/** Owns which policy a command about written files means: that of a configuration, or the files that were named. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import type { Config, PolicySource } from '../../config/config.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { controlRule, policyParts } from '../../runtime/policy-parts.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import type { Io } from '../command-io.ts';
import { sourcesAt } from './replay-target.ts';

/** Options of commands that take paths. */
export interface PathOptions extends CommonOptions {
  /** Relative to the current folder; none: what the configuration names. */
  readonly paths: readonly string[];
}

/** Parts of a policy; `ownRules` of its rules in YAML are Tollgate's own, and not the user's to count. Rego alone needs no `config`. */
export type WrittenParts = PolicyParts & { readonly ownRules: number; readonly config?: Config };

/**
 * The policy of the configuration, or the named files in the place of its sources. Rego alone needs no configuration, so that
 * a folder of policies can stand for itself. Throws CONFIG_INVALID, USAGE.
 */
export function partsOf(options: PathOptions, io: Io): WrittenParts {
  const named = options.paths.flatMap((shown): readonly PolicySource[] =>
    sourcesAt(path.resolve(io.cwd, shown), shown).map(({ kind, at }) => ({ path: at, kind, mode: 'enforce' })),
  );
  const opa = options.opa === undefined ? {} : { opa: options.opa };
  if (
    named.length > 0 &&
    named.every(({ kind }) => kind !== 'yaml') &&
    !existsSync(path.resolve(io.cwd, options.config))
  ) {
    const settings = { servers: [], profiles: [], budgets: [], caps: {}, schemaProfile: 'portable' };
    return {
      settings,
      workspace: io.cwd,
      folder: io.cwd,
      cache: path.join(stateBase(io), 'tollgate', 'policy'),
      rules: [],
      sources: named,
      readYaml,
      ownRules: 0,
      ...opa,
    };
  }
  const config = readConfig(options, io);
  const parts = policyParts(config, opa);
  return named.length === 0
    ? { ...parts, config, ownRules: controlRule(config).value.rules.length }
    : { ...parts, config, rules: [], sources: named, ownRules: 0 };
}

/** Where state goes by default (XDG base directories). */
function stateBase({ env, home }: Pick<Io, 'env' | 'home'>): string {
  const wanted = env.XDG_STATE_HOME ?? '';
  return path.isAbsolute(wanted) ? wanted : path.join(home, '.local', 'state');
}
