/** What a policy is loaded from, and what loading makes of it. */
import type { BundleServer, ModeSettings } from '../port.ts';
import type { RemoteBundle } from '../rego/bundles/remote-bundle.ts';
import type { CompiledConfinement } from '../rules/confinement-rules.ts';
import type { OfferedTools } from '../rules/offered-tools.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import type { PolicySettings } from '../rules/policy-settings.ts';
import type { CompiledRules, YamlRuleDocument } from '../rules/rule-compiler.ts';
import type { RuleWeights } from './decision-cost.ts';

/** Where policy comes from: a YAML rules file, Rego (a folder or a file), or a built bundle. */
export interface SourceSettings extends ModeSettings {
  /** Absolute; the address of a bundle that is fetched. */
  readonly path: string;
  readonly kind: 'yaml' | 'rego' | 'bundle';
  /** How messages name it; default: its path, relative to the folder of the configuration. */
  readonly shown?: string;
  /** Given for a bundle that is fetched. */
  readonly server?: BundleServer;
}

/** YAML as plain values that know their place; the facade's own reader fits. */
export interface YamlDocument {
  readonly value: unknown;
  readonly problems: readonly PolicyProblem[];
  placeOf(
    path: readonly (string | number)[],
    part: 'key' | 'value',
  ): { readonly line: number; readonly column: number };
}

/** All that a policy is made from. */
export interface PolicyParts {
  readonly settings: PolicySettings;
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Absolute: the folder of the configuration; messages name files relative to it. */
  readonly folder: string;
  /** Absolute: where built Rego is kept. Made when needed. */
  readonly cache: string;
  /** Rules that have been read already: those of tollgate.yaml. */
  readonly rules: readonly YamlRuleDocument[];
  /** By server: what rules may name of it. Given only where they are checked before anything runs; a server that is absent cannot be judged. */
  readonly offered?: ReadonlyMap<string, OfferedTools>;
  readonly sources: readonly SourceSettings[];
  readonly readYaml: (file: string, text: string) => YamlDocument;
  /** The command line's --opa. */
  readonly opa?: string;
  /** Milliseconds of processor time for one decision in a worker; default 50 for user Rego, 2,000 for YAML rules, and more with large arguments. */
  readonly deadlineMs?: number;
}

/** All that a decision is made of, before anything runs. */
export interface CompiledParts {
  readonly wasm: Uint8Array;
  /** The text of `data`. */
  readonly data: string;
  readonly rules: CompiledRules;
  readonly confining: CompiledConfinement;
  /** What decisions over the YAML rules cost. */
  readonly weights: RuleWeights;
  /** True when the module holds Rego of the user or came as a bundle, so that it runs in a worker. */
  readonly foreign: boolean;
  /** Given when the bundle was fetched. */
  readonly remote?: RemoteBundle;
}
