/** Owns the reading of what opa refuses, as problems of the user's files, with what to write instead; invents no problem. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import type { StagedFile } from './rego-facts.ts';

const LIBRARY = 'library';

interface OpaError {
  readonly message: string;
  readonly location?: { readonly file: string; readonly row: number; readonly col: number };
  readonly details?: {
    readonly oneOf?: readonly string[] | null;
    /** Types of the arguments of a built-in as they came; null for one that opa does not know. */
    readonly have?: readonly (OpaType | null)[] | null;
    readonly want?: { readonly args?: readonly (OpaType | null)[] | null } | null;
  };
}

interface OpaType {
  readonly type?: string;
  readonly static?: readonly { readonly key: unknown }[] | null;
}

/** What to use where a built-in is not supplied: names, then why and what instead. The first that fits counts. */
const INSTEAD: readonly (readonly [RegExp, string])[] = [
  [
    /^(http\.send|net\.lookup_ip_addr|providers\.)/,
    'a policy reaches no network; put the facts into data.json, or let the server check them',
  ],
  [
    /^(rand\.|uuid\.rfc4122)/,
    'a policy has no random source, so that a decision can be repeated; decide by a fact of the input',
  ],
  [/^opa\.runtime/, 'a policy does not see the environment; put the values into data.json'],
  [
    /^time\./,
    'the clock is read with time.now_ns, time.parse_rfc3339_ns, time.clock, time.date and time.weekday; input.time is the time as text',
  ],
  [/^(re_match)$/, 'use regex.match'],
  [/^regex\./, 'use regex.match, regex.is_valid or regex.find_all_string_submatch_n'],
  [/^(glob\.)/, 'use glob.match with the pattern written out'],
  [/^(io\.jwt|crypto\.)/, 'tokens are checked before the policy is asked, see input.principal; crypto.sha256 is there'],
  [
    /^(semver\.|units\.|hex\.|urlquery\.|yaml\.)/,
    'split and to_number do for most; put prepared values into data.json',
  ],
  [/^object\.subset/, 'compare the keys with `every`'],
  [
    /^(json\.(patch|match_schema|verify_schema))/,
    'read the fields that count with object.get; arguments were checked against the schema of the tool already',
  ],
  [
    /^(any|all|set_diff|cast_\w+|net\.cidr_overlap)$/,
    'it is gone from Rego v1; use `some`, `every`, the minus operator or type tests',
  ],
  [/^(trace|print)$/, 'ask `tollgate try --explain` what a decision saw'],
];

const KNOWN_FAULTS: readonly (readonly [RegExp, string])[] = [
  [
    /^`if` keyword is required|^`contains` keyword is required|^rule head/,
    'this is Rego v0; in v1 write `deny contains {"id": "…", "message": "…"} if { … }`',
  ],
  [/unexpected eof token$/, 'a bracket, a brace or a quote that was opened is not closed'],
  [/^var \S+ is unsafe$/, 'it gets no value: write `some … in …` or `:=` for it in the body, and mind the spelling'],
  [/rego_recursion_error/, 'a rule must not read the decision that it is part of'],
];

/** Turns the errors of opa, with names of the staging folder, into problems of the user's files. Throws POLICY_INVALID when it gave none. */
export function readOpaProblems(output: string, files: readonly StagedFile[]): readonly PolicyProblem[] {
  const shown = new Map(files.map((file) => [file.staged, file.shown]));
  const problems = readErrors(output).map(
    (error): PolicyProblem => ({
      file: shown.get(error.location?.file ?? '') ?? LIBRARY,
      line: error.location?.row ?? 1,
      // opa counts the place after the last line from 0.
      column: Math.max(error.location?.col ?? 1, 1),
      message: explain(error),
    }),
  );
  if (problems.length === 0)
    throw new TollgateError('POLICY_INVALID', { detail: 'opa refuses the policy without saying why.', cause: output });
  // A fault of the user's file shows again in every file of the library that depends on it.
  const own = problems.filter(({ file }) => file !== LIBRARY);
  return own.length > 0 ? own : problems;
}

/** What to use instead of a built-in that is not supplied, or undefined for a name that is none. */
export function adviseBuiltin(name: string): string | undefined {
  return INSTEAD.find(([pattern]) => pattern.test(name))?.[1];
}

function explain({ message, details }: OpaError): string {
  const name = /^undefined function (\S+)$/.exec(message)?.[1] ?? '';
  const advice = adviseBuiltin(name) ?? KNOWN_FAULTS.find(([pattern]) => pattern.test(message))?.[1];
  const known = Array.isArray(details?.oneOf) ? `; known here: ${details.oneOf.join(', ')}` : '';
  return message + known + typesOf(details) + (advice === undefined ? '' : `; ${advice}`);
}

/** What a built-in takes and what it was given, with the fields of an object: mostly one of them was meant. */
function typesOf(details: OpaError['details']): string {
  const [have, want] = [details?.have, details?.want?.args];
  if (!Array.isArray(have) || !Array.isArray(want)) return '';
  const nameOf = ({ type = 'any', static: fields }: OpaType): string =>
    type !== 'object' ? type : `object of ${(fields ?? []).map(({ key }) => String(key)).join(', ')}`;
  const name = (type: OpaType | null): string => nameOf(type ?? {});
  return `; it takes (${want.slice(0, have.length).map(name).join(', ')}) and is given (${have.map(name).join(', ')})`;
}

/** `opa check` answers JSON; `opa build` lines of `file:row: message`. */
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
