/** Parses YAML into plain values with their places. Refuses tags, alias loops, alias bombs and deep nesting early. */
import {
  Composer,
  type CST,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  type YAMLError,
  type YAMLMap,
  YAMLParseError,
} from 'yaml';
import { type ConfigPath, type Located, type Path, type Problem, pathId } from '../config-problems.ts';
import { parseOnce } from './parsed-files.ts';

/** The most levels of nesting. The parser itself would crash at some thousand levels. */
const MAX_DEPTH = 64;
/** The most values that aliases may add. A bomb of nine lines makes a billion. */
const MAX_ALIASED = 20_000;
/** The most characters of one file: about fifty thousand rules. Reading more would take a minute and a gigabyte. */
const MAX_TEXT = 8 * 1024 * 1024;

/** A YAML file as plain values. If `problems` is not empty, `value` must not be used. */
export interface YamlFile extends Located {
  readonly value: unknown;
  readonly problems: readonly Problem[];
}

/** Messages for the errors of the parser, whose own messages quote the file, which may contain secrets. */
const SYNTAX: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'this key appears twice in one map; remove one of them',
  TAB_AS_INDENT: 'a tab indents this line: YAML refuses tabs; indent with spaces',
  BAD_INDENT: 'the indentation does not fit the lines above; align it with its neighbours',
  MULTIPLE_DOCS: 'a second document starts here: one file holds one configuration; remove the `---`',
  MISSING_CHAR: 'a closing character is missing; close the quote, bracket or brace',
  BAD_DQ_ESCAPE: 'this escape is unknown in double quotes; double the backslash or use single quotes',
  BLOCK_AS_IMPLICIT_KEY: 'there is a second `: ` on this line; quote the text or start a new line',
  BAD_ALIAS: 'this alias is not valid; quote text that begins with `*` or `&`',
  BAD_SCALAR_START: 'plain text cannot begin with this character; put it into quotes',
};

/** Errors of indentation share one code of the parser, so they are told apart by the start of its message. */
const INDENTATION: readonly (readonly [start: string, message: string])[] = [
  [
    'Sequence item without -',
    'this line belongs neither to the list above nor to its last entry; indent it like the other lines of the ' +
      'entry, or begin it with `- `',
  ],
  ['A block sequence may not', 'this `- ` is not below the other `- ` of its list; align it with them'],
  [
    'Implicit map keys need',
    'this line is not `key: value`; write a colon and a space after the key, and align it with its neighbours',
  ],
  [
    'Implicit keys need to be on',
    'this line is not `key: value`, or the next one is indented too far; write a colon and a space after the ' +
      'key, and align the lines',
  ],
  ['Flow map', 'a closing `}` is missing before here; close the brace that opens above'],
  ['Flow sequence', 'a closing `]` is missing before here; close the bracket that opens above'],
];

/** A parsed text, without a file name. */
interface PlainYaml {
  readonly value: unknown;
  readonly problems: readonly Omit<Problem, 'file'>[];
  readonly offsets: OffsetEntries;
  readonly lineStarts: readonly number[];
}

/** By the id of a path. Entries, because they are kept as JSON. */
type OffsetEntries = readonly (readonly [id: string, at: { readonly key: number; readonly value: number }])[];
type Offsets = ReadonlyMap<string, { readonly key: number; readonly value: number }>;

/** Reads YAML 1.2. Never throws: errors are in `problems`. */
export function readYaml(file: string, text: string): YamlFile {
  const { value, problems, offsets: entries, lineStarts } = parseOnce(file, text, parseYaml);
  const offsets = new Map(entries);
  return {
    file,
    value,
    problems: problems.map((problem) => ({ file, ...problem })),
    placeOf: (path, part) => placeAt(lineStarts, offsetOf(offsets, path, part)),
  };
}

function parseYaml(text: string): PlainYaml {
  const lines = new LineCounter();
  const problem = (offset: number, message: string): PlainYaml['problems'][number] => ({
    ...placeAt(lines.lineStarts, offset),
    message,
  });
  if (text.length > MAX_TEXT)
    return invalid([problem(0, `more than ${MAX_TEXT} characters in one file; split it into several`)]);
  const { tokens, tooDeepAt } = readTokens(text, lines);
  if (tooDeepAt !== undefined)
    return invalid([problem(tooDeepAt, `nested deeper than ${MAX_DEPTH} levels; flatten it`)]);
  const document = compose(tokens, text.length);
  if (document.errors.length > 0)
    return invalid(
      withoutRepetitions(
        document.errors.map((error) => problem(textFrom(text, error.pos[0]), syntaxMessage(error, document.errors))),
      ),
    );
  if (document.directives?.yaml.explicit === true) {
    return invalid([
      problem(0, 'a %YAML directive: versions differ in what `no` means, so only 1.2 is read; remove the line'),
    ]);
  }
  const conversion = new Conversion(document);
  const value = conversion.run();
  const problems = conversion.faults.map(({ offset, message }) => problem(offset, message));
  return { value, problems, offsets: [...conversion.offsets], lineStarts: lines.lineStarts };
}

function invalid(problems: PlainYaml['problems']): PlainYaml {
  return { value: undefined, problems, offsets: [], lineStarts: [] };
}

/** Returns line and column, both counted from 1. */
function placeAt(lineStarts: readonly number[], offset: number): ConfigPath {
  const lines = new LineCounter();
  lines.lineStarts = lineStarts as number[];
  const { line, col } = lines.linePos(offset);
  return { line: Math.max(line, 1), column: Math.max(col, 1) };
}

function offsetOf(offsets: Offsets, path: Path, part: 'key' | 'value'): number {
  for (let length = path.length; length >= 0; length -= 1) {
    const found = offsets.get(pathId(path.slice(0, length)));
    if (found !== undefined) return length < path.length ? found.key : found[part];
  }
  return 0;
}

/** Drops follow-up errors: after a wrong indentation, the parser also reports the next lines. */
function withoutRepetitions(problems: PlainYaml['problems']): PlainYaml['problems'] {
  const kept: PlainYaml['problems'][number][] = [];
  for (const one of problems) if (one.line > (kept.at(-1)?.line ?? -1) + 1) kept.push(one);
  return kept;
}

/** Returns the offset of the first character at or after `offset` that is not a space. */
function textFrom(text: string, offset: number): number {
  const blanks = /^ */.exec(text.slice(offset))?.[0].length ?? 0;
  return offset + blanks;
}

function syntaxMessage(error: YAMLError, all: readonly YAMLError[]): string {
  // A value with a deeper line below it looks like a key of several lines.
  const isDeeperLine =
    error.code === 'BLOCK_AS_IMPLICIT_KEY' &&
    error.message.startsWith('Nested') &&
    all.some((other) => other.code === 'MULTILINE_IMPLICIT_KEY' && other.pos[0] === error.pos[0]);
  if (isDeeperLine)
    return 'the next line is indented deeper than this one, which already has a value; indent both alike';
  return (
    INDENTATION.find(([start]) => error.message.startsWith(start))?.[1] ??
    SYNTAX[error.code] ??
    `not valid YAML (${error.code.toLowerCase().replaceAll('_', ' ')}); correct the line`
  );
}

/**
 * Runs the iterative part of the parser. `tooDeepAt`: where nesting exceeds the limit; the recursive part would crash.
 */
function readTokens(
  text: string,
  lines: LineCounter,
): { readonly tokens: readonly CST.Token[]; readonly tooDeepAt?: number } {
  lines.addNewLine(0);
  const parser = new Parser(lines.addNewLine);
  const tokens: CST.Token[] = [];
  for (const lexeme of new Lexer().lex(text)) {
    for (const token of parser.next(lexeme)) tokens.push(token);
    if (parser.stack.length > MAX_DEPTH + 1) return { tokens, tooDeepAt: parser.offset };
  }
  return { tokens: [...tokens, ...parser.end()] };
}

/** Runs the recursive part of the parser. */
function compose(tokens: readonly CST.Token[], length: number): Document.Parsed {
  const [document, secondDocument] = new Composer({ uniqueKeys: true, prettyErrors: false, version: '1.2' }).compose(
    tokens,
    true,
    length,
  );
  if (document === undefined) throw new Error('the parser returned no document');
  if (secondDocument !== undefined)
    document.errors.push(new YAMLParseError([secondDocument.range[0], secondDocument.range[1]], 'MULTIPLE_DOCS', ''));
  return document;
}

/** Turns nodes into plain values and notes the offset of each key and value. */
class Conversion {
  readonly faults: { offset: number; message: string }[] = [];
  readonly #document: Document;
  readonly offsets = new Map<string, { readonly key: number; readonly value: number }>();
  #aliased = 0;
  /** The number of aliases on the way to the present node. */
  #aliases = 0;

  constructor(document: Document) {
    this.#document = document;
  }

  run(): unknown {
    return this.#plain(this.#document.contents, [], 0);
  }

  #plain(node: Node | null, path: Path, keyOffset: number): unknown {
    const offset = node?.range?.[0] ?? keyOffset;
    this.offsets.set(pathId(path), { key: keyOffset, value: offset });
    if (this.#aliases > 0) this.#aliased += 1;
    if (path.length > MAX_DEPTH || this.#aliased > MAX_ALIASED)
      return this.#fault(
        offset,
        `aliases that lead into themselves or make more than ${MAX_ALIASED} values; write the values out`,
      );
    if (node?.tag !== undefined && !node.tag.startsWith('tag:yaml.org,2002:'))
      return this.#fault(offset, 'a tag: tags are not allowed; remove it, or quote text that begins with `!`');
    if (isAlias(node)) return this.#alias(node.resolve(this.#document), path, offset);
    if (isMap(node)) return this.#map(node, path);
    if (isSeq(node)) return node.items.map((item, index) => this.#plain(item as Node, [...path, index], offset));
    if (isScalar(node) && typeof node.value === 'object' && node.value !== null)
      return this.#fault(offset, 'a binary value: only text is allowed; remove the tag');
    return isScalar(node) ? node.value : null;
  }

  #alias(target: Node | undefined, path: Path, offset: number): unknown {
    if (target === undefined)
      return this.#fault(offset, 'an alias without an anchor before it; quote text that begins with `*`');
    this.#aliases += 1;
    const value = this.#plain(target, path, offset);
    this.#aliases -= 1;
    return value;
  }

  #map(node: YAMLMap, path: Path): unknown {
    const entries: [string, unknown][] = [];
    for (const pair of node.items) {
      const key = pair.key as Node;
      const offset = key.range?.[0] ?? 0;
      if (!isScalar(key)) this.#fault(offset, 'a key that is not text; write a plain name');
      else
        entries.push([String(key.value), this.#plain(pair.value as Node | null, [...path, String(key.value)], offset)]);
    }
    // Object.fromEntries makes `__proto__` an own key, so that it is refused as unknown and reaches no prototype.
    return Object.fromEntries(entries);
  }

  /** Keeps only the first error, because a document that is too large would add one for each node. */
  #fault(offset: number, message: string): undefined {
    if (this.faults.length === 0) this.faults.push({ offset, message });
    return undefined;
  }
}
