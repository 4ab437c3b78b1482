/** The facts that an inspection finds in user Rego: its rules, sets and exposures. */
import type { Module, Rule } from './syntax-tree.ts';

/** The severities that METADATA may give a rule. */
export const SEVERITIES = ['low', 'medium', 'high', 'critical'] as const;
/** The sets that count. */
export const SETS = ['deny', 'ask', 'allow'] as const;
export type SetName = (typeof SETS)[number];
/** The set that says how tools are shown. Its members are no reasons. */
export const EXPOSE = 'expose';
/** What is known of one rule of a set. */
export interface RegoRule {
  /** Without `policy.`. */
  readonly package: string;
  readonly set: SetName;
  readonly file: string;
  readonly line: number;
  /** Of the rule as it is written, so that two builds can be compared without their sources. */
  readonly digest: string;
  /** As its member writes it, else from METADATA: `custom.id` of the rule, of all rules of its name, or of the package. */
  readonly id?: string;
  readonly title?: string;
  readonly severity?: (typeof SEVERITIES)[number];
  /** What the caller can do instead. */
  readonly remediation?: string;
}

/** What is known of one rule of `expose`: where it stands, and its member as far as it is written out. */
export interface ExposeFacts {
  readonly package: string;
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly tool?: string;
  readonly pins?: readonly string[];
}

/** What the library and its readers need to know of user Rego beyond its evaluation. */
export interface RegoFacts {
  /** Packages below `policy`, without it, with the number of the source that each file of them came from. */
  readonly packages: readonly { readonly name: string; readonly source: number }[];
  /** Which sets are defined anywhere. */
  readonly sets: Readonly<Record<SetName, boolean>>;
  /** Where the reason with this id is written: for members that come without the number of their rule. */
  readonly places: Readonly<Record<string, { readonly file: string; readonly line: number }>>;
  /** By number, as members name them. */
  readonly rules: readonly RegoRule[];
  /** Rules of `expose`, by the number that their members come with; absent in bundles that were built before there were any. */
  readonly exposes?: readonly ExposeFacts[];
  /** Digests of all other rules by their full name, for the same purpose as a rule's own. */
  readonly others: Readonly<Record<string, string>>;
}

/** A source file in its staging folder: `staged` relative to it, `shown` for messages. */
export interface StagedFile {
  readonly staged: string;
  readonly shown: string;
  readonly source: number;
}

/** A file that was parsed. */
export interface ParsedFile extends StagedFile {
  readonly module: Module;
}

/** A rule of a set with its tree. Its number is its index. */
export interface SetRule {
  readonly file: ParsedFile;
  readonly rule: Rule;
  readonly facts: RegoRule;
}

/** A rule of `expose` with its tree. */
export interface RegoExposeRule {
  readonly file: ParsedFile;
  readonly rule: Rule;
  readonly package: string;
}
