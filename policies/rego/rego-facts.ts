/** What the inspection finds in the user's Rego: its rules, sets and exposures. */
import type { Module, Rule } from './syntax-tree.ts';

/** The severities that METADATA may give to a rule. */
export const SEVERITIES = ['low', 'medium', 'high', 'critical'] as const;
/** The sets that decide calls. */
export const SETS = ['deny', 'ask', 'allow'] as const;
export type SetName = (typeof SETS)[number];
/** The set that decides how tools are shown. Its members are not reasons. */
export const EXPOSE = 'expose';
/** Facts about one rule of a set. */
export interface RegoRule {
  /** Without the prefix `policy.`. */
  readonly package: string;
  readonly set: SetName;
  readonly file: string;
  readonly line: number;
  /** Hash of the rule's text, so that two builds can be compared without their sources. */
  readonly digest: string;
  /**
   * From the member, otherwise from METADATA: `custom.id` of the rule, of all rules with its name, or of the package.
   */
  readonly id?: string;
  readonly title?: string;
  readonly severity?: (typeof SEVERITIES)[number];
  /** What the caller can do instead. */
  readonly remediation?: string;
  /** Whether its own text reads `input.effect.kind`. Other rules of `allow` open tools only. */
  readonly readsKind?: true;
}

/** Facts about one rule of `expose`: its place, and the literal part of its member. */
export interface ExposeFacts {
  readonly package: string;
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly tool?: string;
  readonly pins?: readonly string[];
}

/** The place of a reason. */
export interface RegoPlace {
  readonly file: string;
  readonly line: number;
}

/** Facts about the user's Rego that its evaluation does not give. */
export interface RegoFacts {
  /** Packages below `policy`, without that prefix, and the index of the source of each of their files. */
  readonly packages: readonly { readonly name: string; readonly source: number }[];
  /** Which sets have a rule. */
  readonly sets: Readonly<Record<SetName, boolean>>;
  /** Place of the reason with this id, for members that do not have the number of their rule. */
  readonly places: Readonly<Record<string, RegoPlace>>;
  /** By number. Members contain the number of their rule. */
  readonly rules: readonly RegoRule[];
  /** Rules of `expose`, by the number in their members. Absent in bundles of older versions. */
  readonly exposes?: readonly ExposeFacts[];
  /** Digests of all other rules, by full name. */
  readonly others: Readonly<Record<string, string>>;
}

/** A source file in its staging folder. `staged` is relative to that folder; `shown` is its name in messages. */
export interface StagedFile {
  readonly staged: string;
  readonly shown: string;
  readonly source: number;
}

/** A file that was parsed. */
export interface ParsedFile extends StagedFile {
  readonly module: Module;
}

/** A rule of a set with its syntax tree. Its number is its index. */
export interface SetRule {
  readonly file: ParsedFile;
  readonly rule: Rule;
  readonly facts: RegoRule;
}

/** A rule of `expose` with its syntax tree. */
export interface RegoExposeRule {
  readonly file: ParsedFile;
  readonly rule: Rule;
  readonly package: string;
}
