/** Turns the errors of opa into problems of the user's files, with advice on what to write instead. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import type { StagedFile } from './rego-facts.ts';

const LIBRARY = 'library';

interface OpaError {
  readonly message: string;
  readonly location?: { readonly file: string; readonly row: number; readonly col: number };
  readonly details?: {
    readonly oneOf?: readonly string[] | null;
    /** Types of the arguments as given. Null for a type that opa does not know. */
    readonly have?: readonly (OpaType | null)[] | null;
    readonly want?: { readonly args?: readonly (OpaType | null)[] | null } | null;
  };
}

interface OpaType {
  readonly type?: string;
  readonly static?: readonly { readonly key: unknown }[] | null;
}

/** Built-ins that are not supplied, why, and what to use instead. The first pattern that matches counts. */
const ALTERNATIVES: readonly (readonly [RegExp, string])[] = [
  [
    /^(http\.send|net\.lookup_ip_addr|providers\.)/,
    'a policy cannot use the network; put the facts into data.json, or let the server check them',
  ],
  [
    /^(rand\.|uuid\.rfc4122)/,
    'a policy has no source of random numbers, so that a decision can be repeated; decide by a fact of the input',
  ],
  [/^opa\.runtime/, 'a policy cannot read the environment; put the values into data.json'],
  [
    /^time\./,
    'to read the time, use time.now_ns, time.parse_rfc3339_ns, time.clock, time.date, time.weekday, ' +
      'or the text input.time',
  ],
  [/^(re_match)$/, 'use regex.match'],
  [/^regex\./, 'use regex.match, regex.is_valid or regex.find_all_string_submatch_n'],
  [/^(glob\.)/, 'use glob.match with a literal pattern'],
  [/^(io\.jwt|crypto\.)/, 'tokens are checked before the policy runs, see input.principal; crypto.sha256 is supplied'],
  [/^(semver\.|units\.|hex\.|urlquery\.|yaml\.)/, 'use split and to_number, or put prepared values into data.json'],
  [/^object\.subset/, 'compare the keys with `every`'],
  [
    /^(json\.(patch|match_schema|verify_schema))/,
    'read the fields that you need with object.get; arguments were already checked against the schema of the tool',
  ],
  [
    /^(any|all|set_diff|cast_\w+|net\.cidr_overlap)$/,
    'Rego v1 does not have it; use `some`, `every`, the minus operator or type tests',
  ],
  [/^(trace|print)$/, 'run `tollgate try --explain` to see what a decision read'],
];

const KNOWN_FAULTS: readonly (readonly [RegExp, string])[] = [
  [
    /^`if` keyword is required|^`contains` keyword is required|^rule head/,
    'this is Rego v0; in v1 write `deny contains {"id": "…", "message": "…"} if { … }`',
  ],
  [/unexpected eof token$/, 'a bracket, brace or quote is not closed'],
  [/^var \S+ is unsafe$/, 'it gets no value; add `some … in …` or `:=` for it in the body, or check its spelling'],
  [/rego_recursion_error/, 'a rule must not read a decision that depends on this rule'],
];

/**
 * Turns the errors of opa, which name files of the staging folder, into problems of the user's files. Throws
 * POLICY_INVALID if opa reported no error.
 */
export function readOpaProblems(output: string, files: readonly StagedFile[]): readonly PolicyProblem[] {
  const shown = new Map(files.map((file) => [file.staged, file.shown]));
  const problems = readErrors(output).map(
    (error): PolicyProblem => ({
      file: shown.get(error.location?.file ?? '') ?? LIBRARY,
      line: error.location?.row ?? 1,
      // opa counts columns after the last line from 0.
      column: Math.max(error.location?.col ?? 1, 1),
      message: explain(error),
    }),
  );
  if (problems.length === 0)
    throw new TollgateError('POLICY_INVALID', {
      detail: 'opa refuses the policy and gives no reason.',
      cause: output,
    });
  // A fault in the user's file is reported again for every file of the library that depends on it.
  const own = problems.filter(({ file }) => file !== LIBRARY);
  return own.length > 0 ? own : problems;
}

/** Returns what to use instead of a built-in that is not supplied; undefined for any other name. */
export function adviseBuiltin(name: string): string | undefined {
  return ALTERNATIVES.find(([pattern]) => pattern.test(name))?.[1];
}

function explain({ message, details }: OpaError): string {
  const name = /^undefined function (\S+)$/.exec(message)?.[1] ?? '';
  const advice = adviseBuiltin(name) ?? KNOWN_FAULTS.find(([pattern]) => pattern.test(message))?.[1];
  const known = Array.isArray(details?.oneOf) ? `; known names: ${details.oneOf.join(', ')}` : '';
  return message + known + typesOf(details) + (advice === undefined ? '' : `; ${advice}`);
}

/** Returns the expected and the given types of a built-in, with the fields of objects: often one of them was meant. */
function typesOf(details: OpaError['details']): string {
  const [have, want] = [details?.have, details?.want?.args];
  if (!Array.isArray(have) || !Array.isArray(want)) return '';
  const nameOf = ({ type = 'any', static: fields }: OpaType): string =>
    type !== 'object' ? type : `object of ${(fields ?? []).map(({ key }) => String(key)).join(', ')}`;
  const name = (type: OpaType | null): string => nameOf(type ?? {});
  return `; expected (${want.slice(0, have.length).map(name).join(', ')}), given (${have.map(name).join(', ')})`;
}

/** `opa check` writes JSON; `opa build` writes lines of `file:row: message`. */
function readErrors(output: string): readonly OpaError[] {
  try {
    return (JSON.parse(output) as { errors?: readonly OpaError[] }).errors ?? [];
  } catch {
    return [...output.matchAll(/([^\s:]+\.rego):(\d+): (.*)$/gm)].map(([, file = '', row, message = '']) => ({
      message,
      location: { file, row: Number(row), col: 1 },
    }));
  }
}
