/** Fills in the variables in texts of tollgate.yaml. Keys may contain none, so that no message shows a value. */
import type { Path, ProblemReport } from '../config-problems.ts';
import { substitute, type Variables } from './variable-substitution.ts';

/** The most characters of one text after variables were filled in. */
const MAX_TEXT = 32_768;

/** Secrets of the client of a sign-in. */
const SIGN_IN_SECRETS: readonly Path[] = [
  ['servers', '*', 'oauth', 'clientSecret'],
  ['servers', '*', 'oauth', 'privateKey'],
  ['servers', '*', 'oauth', 'enterprise', 'clientSecret'],
  ['servers', '*', 'oauth', 'enterprise', 'privateKey'],
  ['servers', '*', 'oauth', 'enterprise', 'idToken'],
];

/**
 * Paths of texts with variables; `*` is any one key, `**` everything below. Rules may contain none, because the same
 * text must have the same meaning in a separate rules file.
 */
const WITH_VARIABLES: readonly Path[] = [
  ['workspace'],
  ['state'],
  ['state', 'folder'],
  ['state', 'store'],
  ['state', 'ca'],
  ['otherWorkspaces', '*', '*'],
  ['include', '*'],
  ['registries', '*'],
  ['policies', '*'],
  ['policies', '*', 'path'],
  ['policies', '*', 'url'],
  ['policies', '*', 'token'],
  ['policies', '*', 'verify', 'keys', '*'],
  ['audit', 'folder'],
  ['audit', 'replica'],
  ['audit', 'export', 'to'],
  ['audit', 'export', 'headers', '*'],
  ['notices', 'webhook'],
  ['listen', 'host'],
  ['listen', 'hosts', '*'],
  ['principals', '*', 'token'],
  ['servers', '*', 'command'],
  ['servers', '*', 'cwd'],
  ['servers', '*', 'url'],
  ['servers', '*', 'args', '*'],
  ['servers', '*', 'env', '*'],
  ['servers', '*', 'headers', '*'],
  ['servers', '*', 'oauth', 'clientId'],
  ['servers', '*', 'oauth', 'enterprise', 'clientId'],
  ...SIGN_IN_SECRETS,
  ['servers', '*', 'sandbox', 'filesystem', '*', '*'],
  ['servers', '*', 'sandbox', 'image'],
  ['bash', 'filesystem', '*', '*'],
  ['expose', 'tools', '*', 'pins', '**'],
  ['profiles', '*', 'env', '*', '*'],
  ['profiles', '*', 'expose', 'tools', '*', 'pins', '**'],
];

/** Texts whose variables contain secrets. */
const SECRET_VALUES: readonly Path[] = [
  ['principals', '*', 'token'],
  ['policies', '*', 'token'],
  ['audit', 'export', 'headers', '*'],
  ['notices', 'webhook'],
  ['servers', '*', 'env', '*'],
  ['servers', '*', 'headers', '*'],
  ['profiles', '*', 'env', '*', '*'],
  ...SIGN_IN_SECRETS,
];

/** Texts that may contain `${secret:NAME}`, which is filled in when a server is started or reached. */
const SECRET_REFERENCES: readonly Path[] = [
  ['audit', 'export', 'headers', '*'],
  ['servers', '*', 'env', '*'],
  ['servers', '*', 'headers', '*'],
  ['profiles', '*', 'env', '*', '*'],
  ...SIGN_IN_SECRETS,
];

/** What filling in needs. Values of variables in secret places are added to `secrets`. */
export interface FillContext {
  readonly variables: Variables;
  readonly report: ProblemReport;
  readonly secrets: Set<string>;
}

/**
 * Returns a copy of `value` with the variables of its texts filled in. A text with an error is reported and becomes
 * empty.
 */
export function fillVariables(value: unknown, at: Path, context: FillContext): unknown {
  if (Array.isArray(value)) return value.map((item, index) => fillVariables(item, [...at, index], context));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, fillVariables(item, [...at, key], context)]),
    );
  return typeof value === 'string' && WITH_VARIABLES.some((pattern) => matches(pattern, at))
    ? fillText(value, at, context)
    : value;
}

function fillText(text: string, at: Path, { variables, report, secrets }: FillContext): string {
  const isAt = (patterns: readonly Path[]): boolean => patterns.some((pattern) => matches(pattern, at));
  const filled = substitute(text, { ...variables, secrets: isAt(SECRET_REFERENCES) });
  const fault = filled.ok ? textFault(filled.text) : filled.reason;
  if (fault !== undefined) report.refuse(at, fault);
  if (fault !== undefined || !filled.ok) return '';
  if (isAt(SECRET_VALUES)) filled.fromOutside.forEach((secret) => secrets.add(secret));
  return filled.text;
}

/** Returns why the text cannot be a path, argument or header; undefined if it can. */
function textFault(text: string): string | undefined {
  if (text.includes('\0')) return 'the text contains a NUL character, and programs ignore what follows it; remove it';
  return text.length > MAX_TEXT
    ? `the text is longer than ${MAX_TEXT} characters: nothing here needs that; shorten it`
    : undefined;
}

function matches(pattern: Path, at: Path): boolean {
  const below = pattern.at(-1) === '**';
  if (below ? at.length < pattern.length : at.length !== pattern.length) return false;
  return pattern.every((part, index) => part === '*' || part === '**' || part === at[index]);
}
