/**
 * Finds the tools and arguments that belong to a capability that is off by default. The name of a server does not
 * count.
 */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { codeSource, interpreterName, startedBy } from '../programs/interpreters.ts';
import { isLiteralCommand } from '../programs/literal-programs.ts';

/** One capability of catalogs/tools/tool-capabilities.yaml. */
export interface Capability {
  readonly name: string;
  readonly title: string;
  /** In plain words, for the person who decides. */
  readonly allows: string;
  readonly risk: string;
  /** Per session, unless the owner says otherwise. */
  readonly budget: { readonly calls: number; readonly bytes: number };
  /** Words of names of tools, in lower case. */
  readonly names: readonly (readonly string[])[];
  /** Servers whose arguments are checked: by their mapping, or by tools that they offer together. */
  readonly on?: { readonly mapping: string; readonly tools: readonly string[] };
  /** Ends of file names, with their dot. */
  readonly files: readonly string[];
  /** Interpreters that are given no code file. */
  readonly interpreters: ReadonlySet<string>;
  /** Beginnings of commands. */
  readonly programs: readonly (readonly string[])[];
  /** Everything that servers of host profiles do. */
  readonly host: boolean;
  /** Paths in folders of other workspaces. */
  readonly crosses: boolean;
}

/** What a call does, as far as a capability needs it. */
export interface CapabilityUse {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** Paths as they were resolved, because a link may hide its target. */
  readonly paths: readonly string[];
  /**
   * `words`: of each simple command, whatever its program starts; absent if the text does not reduce to literal words.
   */
  readonly command?: { readonly text: string; readonly words?: readonly (readonly string[])[] };
}

interface Written
  extends Omit<Capability, 'name' | 'names' | 'files' | 'interpreters' | 'programs' | 'host' | 'crosses'> {
  readonly names?: readonly (string | readonly string[])[];
  readonly files?: readonly string[];
  readonly programs?: readonly (readonly string[] | { readonly interpreter: readonly string[] })[];
  readonly host?: boolean;
  readonly crosses?: boolean;
}

/** By name, in the order of the file. */
export const TOOL_CAPABILITIES: ReadonlyMap<string, Capability> = load();

function load(): ReadonlyMap<string, Capability> {
  const written = parse(readFileSync(new URL('./tool-capabilities.yaml', import.meta.url), 'utf8')) as Readonly<
    Record<string, Written>
  >;
  return new Map(
    Object.entries(written).map(
      ([name, { names = [], files = [], programs = [], host = false, crosses = false, ...rest }]) => {
        const capability: Capability = {
          name,
          ...rest,
          names: names.map((words) => [words].flat()),
          files,
          interpreters: new Set(programs.flatMap((program) => ('interpreter' in program ? program.interpreter : []))),
          programs: programs.flatMap((program) => ('interpreter' in program ? [] : [program])),
          host,
          crosses,
        };
        return [name, capability];
      },
    ),
  );
}

/** Returns whether the tool belongs to it by its name alone. */
export function isNamed({ names }: Capability, tool: string): boolean {
  const words = [...wordsOf(tool), '$'];
  return names.some((run) => words.some((_, at) => run.every((word, index) => words[at + index] === word)));
}

/** Returns whether the arguments of a server's tools may use it. `tools`: all that the server offers. */
export function isOn(
  { on }: Capability,
  { mapping, tools }: { readonly mapping: string | undefined; readonly tools: ReadonlySet<string> },
): boolean {
  return on !== undefined && (mapping === on.mapping || on.tools.every((tool) => tools.has(tool)));
}

/** Returns whether a call on such a server uses it: by a file in its arguments, or by what its command would start. */
export function isUsed(capability: Capability, use: CapabilityUse): boolean {
  if (
    capability.files.length > 0 &&
    !FILES_AS_SUCH.test(wordsOf(use.tool).join(' ')) &&
    [...use.paths, ...filesIn(use.args)].some((file) => endsIn(file, capability.files))
  )
    return true;
  return use.command !== undefined && starts(capability, use.command);
}

/** Returns the words of a name in lower case: `readPDFFile` and `read-pdf_file` give read, pdf, file. */
function wordsOf(name: string): readonly string[] {
  return name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z]+)([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/)
    .filter((word) => word !== '');
}

/** Tools that look at names of files, not into them. */
const FILES_AS_SUCH = /^(?:list|move|rename|delete|remove|create (?:directory|folder|dir))\b/;
/** Names of arguments that contain a path. In other arguments, only a single word counts as a file, not a sentence. */
const PLACES = /path|file|url|uri|source|dest|input|output|target|document|pattern|glob|src|dst|location|attachment/i;
const MAX_DEPTH = 6;

/** Returns the texts in arguments that may name a file, at most six levels deep. */
function filesIn(args: unknown, isPlace = false, depth = 0): readonly string[] {
  if (typeof args === 'string') return isPlace || !/\s/.test(args.trim()) ? [args] : [];
  if (typeof args !== 'object' || args === null || depth > MAX_DEPTH) return [];
  return Object.entries(args).flatMap(([key, value]) =>
    filesIn(value, Array.isArray(args) ? isPlace : PLACES.test(key), depth + 1),
  );
}

/**
 * Returns true if a text names a file with one of the endings, such as `a.PDF`, `https://x/a.pdf?download=1`,
 * `a.%70df`, `a.pdf.` (Windows ignores the dot), `a.pdf:3`, `"a.pdf"`, `*.xlsx`, `*.{txt,pdf}`, `a.p*`,
 * `data:application/pdf`.
 */
function endsIn(file: string, ends: readonly string[]): boolean {
  const small = decoded(file).toLowerCase().trim();
  const [, kind] = /^data:([^,;]*)/.exec(small) ?? [];
  if (kind !== undefined)
    return ends.some((end) => kind.includes(end.slice(1)) || (end === '.xlsx' && /excel|spreadsheet/.test(kind)));
  const places = [
    small,
    small.replace(/[?#].*$/s, ''),
    small.replace(/:[^/\\]*$/, ''),
    ...small.split(/[,|{}()\s]+/),
  ].map((place) => place.replace(/[\s./\\:"'`<>]+$|:\$data$/g, ''));
  return ends.some((end) =>
    places.some(
      (place) =>
        place.endsWith(end) || (place.endsWith(end.slice(1)) && /[,|{}]/.test(small)) || matchesEnd(place, end),
    ),
  );
}

/** Returns a text with percent-encoding decoded up to three times, because a server may decode it repeatedly. */
function decoded(text: string, times = 3): string {
  const once = text.replace(/%([0-7][0-9a-f])/gi, (_whole, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  return once === text || times === 1 ? once : decoded(once, times - 1);
}

/** Returns true for a pattern with a letter in its extension that matches the ending: `a.p*`, `*.xls?`, `a.[p]df`. */
function matchesEnd(place: string, end: string): boolean {
  const [, pattern] = /\.([^./\\]*[*?[][^./\\]*)$/.exec(place) ?? [];
  if (pattern === undefined || pattern.length > 40 || !/[a-z]/.test(pattern)) return false;
  const source = (pattern.match(/\[[^\]]*\]|[^]/g) ?? []).map((part) =>
    part === '*' ? '.*' : part.length > 1 || part === '?' ? '.' : part.replace(/\W/, '\\$&'),
  );
  return new RegExp(`^${source.join('').replace(/(?:\.\*)+/g, '.*')}$`).test(end.slice(1));
}

const SHELLS = new Set(['sh', 'bash', 'dash', 'zsh', 'ksh', 'fish', 'eval', 'cmd', 'powershell', 'pwsh']);
function starts(capability: Capability, { text, words }: NonNullable<CapabilityUse['command']>): boolean {
  if (capability.programs.some(([only, ...more]) => more.length === 0 && text.trim().toLowerCase() === only))
    return true;
  if (words?.some((command) => begins(capability, command)) === true) return true;
  // A text that does not reduce to words may start anything, and so may a shell inside, so the names in it count.
  if (
    words === undefined ||
    words.some(([first = '', ...more]) => SHELLS.has(programOf(first)) && more.some((word) => /^-\w*c/.test(word)))
  )
    return isNamedIn(capability, text);
  return words.some((command) => mayStartArguments(command) && isNamedIn(capability, command.slice(1).join(' ')));
}

/** Returns whether a program may start what its words name: an interpreter was judged by the code that it is given. */
function mayStartArguments(command: readonly string[]): boolean {
  return !isLiteralCommand(command) && !startedBy(command).some((rest) => codeSource(rest) !== undefined);
}

function isNamedIn(capability: Capability, text: string): boolean {
  const named = new Set(
    text
      .toLowerCase()
      .match(/[a-z][\w@/.-]*/g)
      ?.map(programOf) ?? [],
  );
  return (
    [...capability.interpreters].some((one) => one.length > 1 && named.has(one)) ||
    capability.programs.some((program) =>
      program.every((word) => named.has(programOf(word.toLowerCase())) || word.startsWith('-')),
    )
  );
}

function begins(capability: Capability, command: readonly string[]): boolean {
  return startedBy(command).some((rest) => {
    const name = interpreterName(rest[0] ?? '');
    // An interpreter with a code file is nothing special; one with unknown options may be.
    if ([...capability.interpreters].some((one) => interpreterName(one) === name))
      return !['file', 'nothing'].includes(codeSource(rest)?.from ?? 'repl');
    return capability.programs.some(
      (program) =>
        programOf(rest[0] ?? '') === programOf(program[0] ?? '') &&
        program.slice(1).every((word) => rest.slice(1).includes(word)),
    );
  });
}

/** Returns the name of a program without folder and minor version: `/usr/bin/python3.11` gives python3. */
function programOf(word: string): string {
  return word
    .toLowerCase()
    .replace(/^.*[/\\]/, '')
    .replace(/\.exe$/, '')
    .replace(/^(python[23]?|ruby|perl|lua)[\d.]+$/, '$1');
}
