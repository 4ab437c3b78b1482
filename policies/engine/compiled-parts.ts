/** The parts that a policy is loaded from, and the result of compiling them. */
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { BundleServer, ModeSettings } from '../port.ts';
import type { RemoteBundle } from '../rego/bundles/remote-bundle.ts';
import type { CompiledConfinement } from '../rules/confinement-rules.ts';
import type { OfferedTools } from '../rules/offered-tools.ts';
import type { PolicySettings } from '../rules/policy-settings.ts';
import type { CompiledRules, YamlDocument, YamlRuleDocument } from '../rules/rule-compiler.ts';
import type { RuleWeights } from './decision-cost.ts';

/** A source of policy: a YAML rules file, Rego (a folder or a file), or a built bundle. */
export interface SourceSettings extends ModeSettings {
  /** Absolute path, or the URL of a fetched bundle. */
  readonly path: string;
  readonly kind: 'yaml' | 'rego' | 'bundle';
  /** Name in messages. Default: the path relative to the folder of the configuration. */
  readonly shown?: string;
  /** Set for a bundle that is fetched. */
  readonly server?: BundleServer;
}

/** Everything that a policy is made from. */
export interface PolicyParts {
  readonly settings: PolicySettings;
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Folder of the configuration, absolute. Messages name files relative to it. */
  readonly folder: string;
  /** Folder for built Rego, absolute. Created when needed. */
  readonly cache: string;
  /** Rules that were already read: those of tollgate.yaml. */
  readonly rules: readonly YamlRuleDocument[];
  /** The tools of servers that are known before anything runs. Rules about other servers cannot be checked. */
  readonly offered?: ReadonlyMap<string, OfferedTools>;
  readonly sources: readonly SourceSettings[];
  readonly readYaml: (file: string, text: string) => YamlDocument;
  /** Value of --opa on the command line. */
  readonly opa?: string;
  /**
   * Milliseconds of processor time for one decision in a worker. Default: 50 for user Rego, 2,000 for YAML rules. Large
   * arguments get more.
   */
  readonly deadlineMs?: number;
}

/** Everything that decisions need, before anything is started. */
export interface CompiledParts {
  readonly wasm: Uint8Array;
  /** The text of `data`. */
  readonly data: string;
  readonly rules: CompiledRules;
  readonly confining: CompiledConfinement;
  /** Estimated costs of decisions by the YAML rules. */
  readonly weights: RuleWeights;
  /** Whether the module contains Rego of the user or came as a bundle. Then it runs in a worker. */
  readonly foreign: boolean;
  /** Set if the bundle was fetched. */
  readonly remote?: RemoteBundle;
}

/** Returns a file name for messages: relative to the folder of the configuration, otherwise only the last name. */
export function pathInMessages(file: string, folder: string): string {
  return isPathWithin(file, folder) ? path.relative(folder, file) || '.' : path.basename(file);
}
