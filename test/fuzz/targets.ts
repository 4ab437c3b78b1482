/**
 * Readers of bytes of a client or a server, as functions of one text. Add a row for each new parser, validator or
 * shaper. Readers that do I/O have their rows in readers.ts.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import { readClientHello } from '../../adapters/egress/client-hello.ts';
import { readAbsoluteUrl } from '../../adapters/egress/http-forward.ts';
import { textOfHtml } from '../../adapters/primitives/fetch/html-text.ts';
import { findMarkers, shellQuote } from '../../adapters/primitives/mapped/command-markers.ts';
import { widenUntilUnique } from '../../adapters/primitives/mapped/mapped-edit.ts';
import { isIgnored, parseIgnore } from '../../adapters/primitives/search/folder-walk.ts';
import { compileGlob } from '../../adapters/primitives/search/glob-matcher.ts';
import { SearchHits } from '../../adapters/primitives/search/search-hits.ts';
import { OutputLog } from '../../adapters/primitives/shell/output-log.ts';
import { decodeText, printableName } from '../../adapters/primitives/workspace/file-text.ts';
import { nearestText } from '../../adapters/primitives/workspace/nearest-text.ts';
import { occurrences } from '../../adapters/primitives/workspace/occurrences.ts';
import { applyEdit } from '../../adapters/primitives/workspace/text-edit.ts';
import { changedLines, textAround } from '../../adapters/primitives/workspace/write-actions.ts';
import { fitsDouble } from '../../adapters/rpc/decimal.ts';
import { EventStreamReader } from '../../adapters/rpc/event-stream.ts';
import { LineReader, oneLine } from '../../adapters/rpc/framing.ts';
import { startScan } from '../../adapters/rpc/json-scan.ts';
import { jsonMembers, parseJsonDoc, readMessage } from '../../adapters/rpc/message-parser.ts';
import { readNoisyLine } from '../../adapters/rpc/message-reader.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { auditTool } from '../../catalogs/lint/definition-audit.ts';
import { lintTool } from '../../catalogs/lint/definition-lint.ts';
import { decodedBlobs, fold, hiddenMessage, isConfusable, unleet } from '../../catalogs/lint/lint-fold.ts';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { codeSource, inlineCode, interpreterName, startedBy } from '../../catalogs/programs/interpreters.ts';
import { isLiteralCommand } from '../../catalogs/programs/literal-programs.ts';
import { parseText } from '../../catalogs/projection/argument-lifting.ts';
import { projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { parseAuthority, parseHost } from '../../catalogs/readers/hosts.ts';
import { locate, otherReadings } from '../../catalogs/readers/path-location.ts';
import { readUrl } from '../../catalogs/readers/urls.ts';
import { canonicalize } from '../../catalogs/schemas/canonical-schema.ts';
import { cleanDescription, escapeHostile, toolDescription } from '../../catalogs/text/hostile-text.ts';
import { countLines, holdsNote, pageText } from '../../catalogs/text/text-pages.ts';
import { segmentEnds } from '../../catalogs/text/text-segments.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import { canonicalJson, pinsOf } from '../../catalogs/tools/definition-pin.ts';
import { exposedNames } from '../../catalogs/tools/exposed-names.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { ContentItem, RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { repairArguments } from '../../catalogs/validation/argument-repair.ts';
import { guardPattern, isPlain } from '../../catalogs/validation/pattern-guard.ts';
import { formatFaults } from '../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { effectOf } from '../../facade/call/lowering/call-effect.ts';
import { bindArguments } from '../../facade/call/validate.ts';
import { markExactNumbers, restoreExactNumbers } from '../../facade/output/exact-numbers.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { TOOL_FORM } from '../../facade/output/result-forms.ts';
import { shapeResult, withMeta } from '../../facade/output/result-shape.ts';
import { Spills } from '../../facade/output/spills.ts';
import { cutStructuredContent } from '../../facade/output/structured-cut.ts';
import { cutText, fitsCap } from '../../facade/output/text-cut.ts';
import { LineWriter } from '../../facade/serve/stdio-transport.ts';
import { callInputText } from '../../policies/engine/policy-input.ts';
import type { CallInput } from '../../policies/port.ts';

/** One reader. */
export interface Target {
  readonly name: string;
  /** Converts a text to the input of the reader. This is not measured. */
  readonly make: (text: string) => unknown;
  readonly run: (input: unknown) => unknown;
}

/** Returns a row for a reader of texts. */
function ofText(name: string, run: (text: string) => unknown): Target {
  return of(name, (text) => text, run);
}

/** Returns a row for a reader of another input, which `make` creates from a text. */
function of<T>(name: string, make: (text: string) => T, run: (input: T) => unknown): Target {
  return { name, make, run: run as Target['run'] };
}

const redactor = new Redactor();
for (const secret of ['aaaaaaab', 'k"y\\/1\n+é-secret']) redactor.register(secret);
const profile = loadSchemaProfile('portable');

const tool = (text: string, inputSchema: Record<string, unknown> = { type: 'object' }): RawTool => ({
  name: 'tool',
  description: text,
  inputSchema,
});
/** Lists, objects and texts made from the lines of a text, so that their number grows too. */
const parts = (text: string): readonly string[] => text.split(/[\n,]/);
/** For definitions. Servers have at most thousands of them. */
const few = (text: string): readonly string[] => parts(text).slice(0, 2_000);
const keyed = (text: string): Record<string, string> =>
  Object.fromEntries(parts(text).map((part, at) => [`${at}${part.slice(0, 20)}`, part]));

function docOf(content: readonly ContentItem[], more: Readonly<Record<string, unknown>> = {}): JsonDoc<ToolResult> {
  const value = { content, ...more };
  return { text: JSON.stringify(value), value, exact: true };
}

function shaped(doc: JsonDoc<ToolResult>): unknown {
  return shapeResult(doc, {
    cap: { bytes: 30_000, lines: 2_000 },
    mediaBytes: 1_048_576,
    form: TOOL_FORM,
    shownUri: (uri) => uri,
    headShare: 0.3,
    redactor,
    raw: false,
    spill: { put: (all) => ({ handle: 'spill://x', bytes: all.length }) },
    reader: 'read',
    meta: '"tollgate/a":1',
    ownNotes: true,
    notes: [],
  });
}

const SPILL_OWNER = { principal: 'p', run: 'r' };
const spills = new Spills(mkdtempSync(path.join(tmpdir(), 'tollgate-fuzz-')));
process.once('exit', () => spills.close());
const callInput = (argsText: string): CallInput =>
  ({
    principal: { id: 'p', role: 'r', groups: [], profiles: [], origin: 'stdio' },
    run: 'r',
    effect: { verb: 'read', server: 's', tool: 't', paths: [], urls: [] },
    labels: [],
    time: '2026-01-01T00:00:00Z',
    argsText,
  }) as unknown as CallInput;

function read(text: string, slices: number): number {
  let lines = 0;
  const reader = new LineReader({ maxBytes: 64 * 1_048_576, onLine: () => (lines += 1), onBad: () => (lines += 1) });
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += slices) reader.push(bytes.subarray(at, at + slices));
  reader.end();
  return lines;
}

const edit = async (text: string, args: Parameters<typeof applyEdit>[1]): Promise<unknown> => {
  const outcome = await applyEdit(text, args);
  return 'refusal' in outcome
    ? outcome
    : [changedLines(outcome.text, outcome), textAround(outcome.text, outcome.places)];
};

const FORMATS = [
  'date',
  'time',
  'date-time',
  'duration',
  'uri',
  'uri-reference',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uuid',
  'json-pointer',
  'regex',
];
/**
 * Other expressions run with a time limit (catalogs/validation/pattern-guard.ts), which test/security/blocking.test.ts
 * measures.
 */
const PATTERNS = ['^[a-z]+$', 'a.c', '^.*$'];
const one = (schema: Record<string, unknown>): ((text: string) => unknown) => {
  const { check } = createValidator({ type: 'object', properties: { x: schema } });
  return (text) => formatFaults(check({ x: text }));
};
const listed = createValidator({
  type: 'object',
  properties: {
    l: {
      type: 'array',
      items: {
        anyOf: [
          { type: 'string', maxLength: 3 },
          { type: 'object', required: ['a'] },
        ],
      },
      uniqueItems: true,
    },
    o: { type: 'object', additionalProperties: { type: 'integer' }, propertyNames: { maxLength: 9 } },
  },
});
const loose = {
  type: 'object',
  properties: {
    l: { type: 'array', items: { type: 'object' } },
    n: { type: 'integer' },
    o: { type: 'object', properties: { a: { type: 'string' } } },
  },
};

const looseCheck = createValidator(loose);

/** The rows that `npm test` runs. */
export const TARGETS: readonly Target[] = [
  ofText('readMessage of a client', (text) => readMessage(Buffer.from(text), 'client')),
  ofText('readMessage of a server', (text) => readMessage(Buffer.from(text), 'server')),
  ofText('readNoisy', (text) => readNoisyLine(Buffer.from(`log: ${text}`))),
  ofText('parseDoc', (text) => parseJsonDoc(text)),
  ofText('members', (text) => jsonMembers(text)),
  ofText('LineReader, whole', (text) => read(text, 65_536)),
  ofText('LineReader, in slices of 7 bytes', (text) => read(text, 7)),
  ofText('startScan, in 64 parts', (text) => {
    const scan = startScan(2);
    const bytes = Buffer.from(text);
    for (let part = 1; part < 64; part += 1) scan.advance(bytes.subarray(0, (part * bytes.length) / 64));
    return scan.finish(bytes);
  }),
  ofText('oneLine', (text) => oneLine(text)),
  ofText('readHello', (text) => [
    readClientHello(Buffer.from(text)),
    readClientHello(Buffer.concat([Buffer.from([22, 3, 1, 0, 9, 1]), Buffer.from(text, 'latin1')])),
    readClientHello(Buffer.from(`${'\u0016\u0003\u0001\u0000\u0001x'.repeat(text.length / 6)}`, 'latin1')),
  ]),
  ofText('readAbsolute', (text) => readAbsoluteUrl(`http://${text}`)),
  ofText('commandFact', (text) => commandFact(text)),
  ofText('readUrl', (text) => [readUrl(text), readUrl(`http://a/${text}`)]),
  ofText('parseHost and parseAuthority', (text) => [parseHost(text), parseAuthority(text), parseAuthority(`[${text}`)]),
  ofText('otherReadings', (text) => otherReadings(text)),
  ofText('locate', (text) => locate(['/nonexistent-root'], text)),
  ofText('segmentEnds', (text) => segmentEnds(text)),
  ofText('escapeHostile', (text) => escapeHostile(text)),
  ofText('cleanDescription', (text) => [
    cleanDescription(text, { max: 1_024 }),
    cleanDescription(text, { max: 10_000_000 }),
  ]),
  ofText('toolDescription', (text) => toolDescription({ name: text, description: text, hints: [text] })),
  ofText('auditTool, the description', (text) => auditTool(tool(text))),
  ofText('auditTool, the schema', (text) =>
    auditTool(
      tool('x', {
        type: 'object',
        properties: Object.fromEntries(
          parts(text)
            .slice(0, 500)
            .map((part, at) => [`p${at}`, { type: 'string', description: part }]),
        ),
      }),
    ),
  ),
  ofText('occurrences', (text) =>
    [1, 40, text.length / 4].map((length) =>
      occurrences(text, { needle: text.slice(-length), overlap: true, limit: 100_000 }),
    ),
  ),
  ofText('applyEdit, replace all', (text) =>
    edit(text, { old_string: text.slice(0, 2), new_string: 'xyz', replace_all: true }),
  ),
  ofText('applyEdit, a long text', (text) =>
    edit(text, { old_string: `${text.slice(0, text.length / 4)}b${text.slice(0, text.length / 4)}`, new_string: 'x' }),
  ),
  ofText('applyEdit, other line ends and numbers', (text) =>
    edit(text, { old_string: `1: ${text.slice(0, 50).replaceAll('\n', '\r\n')}\n2: `, new_string: 'x\ny', line: 3 }),
  ),
  ofText('nearestPlaces', (text) => nearestText(text, `${text.slice(0, 80)}x`)),
  ofText('compileGlob, the pattern', (text) => {
    const glob = compileGlob(text.slice(0, 1_000));
    return glob('a/b/c.ts');
  }),
  of('canonicalJson', keyed, canonicalJson),
  of(
    'canonicalize',
    (text) => ({ type: 'object', properties: keyed(text), required: parts(text), enum: parts(text) }),
    canonicalize,
  ),
  of('parseText', (text) => text, parseText),
  of('exposedNames', (text) => few(text).map((part) => ({ server: 's', tool: part.slice(0, 100) })), exposedNames),
  of('pinsOf', (text) => parts(text).map((part) => ({ ...tool('x'), name: part.slice(0, 5) })), pinsOf),
  of(
    'readMessage, the text as a value',
    (text) =>
      Buffer.from(
        JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: text, arguments: keyed(text) } }),
      ),
    (bytes) => readMessage(bytes, 'client'),
  ),
  ofText('pageText', (text) => [
    pageText(text, { offset: 1, limit: 50, bytes: 30_000, lines: 2_000 } as never, 'x'),
    holdsNote(text),
  ]),
  ...FORMATS.map((format) => ofText(`format ${format}`, one({ type: 'string', format }))),
  ...PATTERNS.map((pattern) => ofText(`pattern ${pattern}`, one({ type: 'string', pattern }))),
  ofText('maxLength, enum and const', one({ type: 'string', maxLength: 5, enum: ['a', 'b'], const: 'c' })),
  // Patterns that are not plain run with a time limit, which test/security/blocking.test.ts measures.
  ofText('patterns of others', (text) => {
    const pattern = text.slice(0, 2_000);
    return isPlain(pattern) && guardPattern(pattern)?.test('aaaa');
  }),
  of(
    'a list and an object of values',
    (text) => ({ l: parts(text), o: keyed(text) }),
    (value) => formatFaults(listed.check(value)),
  ),
  of(
    'repairArgs',
    (text) => ({ l: parts(text), n: text, o: text }),
    (args) => repairArguments(loose, args, looseCheck.check(args)),
  ),
  ofText('widen', (text) =>
    widenUntilUnique(text, `${text.slice(0, text.length / 2)}x${text.slice(text.length / 2)}`, {
      start: Math.floor(text.length / 2),
      end: Math.floor(text.length / 2) + 1,
    }),
  ),
  ofText('compileGlob, the path', (text) =>
    ['**/a*b/**', '*a*b*', '{a,b}*/[!x]*'].map((glob) => compileGlob(glob)(text)),
  ),
  ofText('textOfHtml', (text) => textOfHtml(text)),
  ofText('OutputLog', (text) => {
    const log = new OutputLog();
    for (let at = 0; at < text.length; at += 1_024) log.push(Buffer.from(text.slice(at, at + 1_024)));
    return log.lines(1, 2_000);
  }),
  ofText('marks', (text) => [findMarkers(text.split('\n'), 'token'), shellQuote(text)]),
  of(
    'decodeText',
    (text) => ({ text, bytes: Buffer.from(text) }),
    ({ text, bytes }) => [decodeText(bytes), countLines(text), printableName(text)],
  ),
  ofText('cutText', (text) =>
    fitsCap(text, { bytes: 3_000, lines: 20 }) ? text : cutText(text, { bytes: 3_000, lines: 20 }, 0.3),
  ),
  ofText('Redactor', (text) => [redactor.touches(text), redactor.redact(text)]),
  of('shape, one text', (text) => docOf([{ type: 'text', text }]), shaped),
  of('shape, many items', (text) => docOf(parts(text).map((part) => ({ type: 'text', text: part }))), shaped),
  of(
    'shape, resources and unknown members',
    (text) =>
      docOf(
        parts(text).map((part) => ({ type: 'resource_link', uri: `file:${part}`, name: part })),
        { more: text, _meta: keyed(text) },
      ),
    shaped,
  ),
  of('shape, structured content', (text) => docOf([], { structuredContent: keyed(text) }), shaped),
  of(
    'shrink',
    (text) => [{ text, l: parts(text) }, keyed(text), parts(text).map((part) => ({ [part.slice(0, 9)]: part }))],
    (values) => values.map((value) => cutStructuredContent(value, 3_000)),
  ),
  ofText('numbers', (text) => restoreExactNumbers(markExactNumbers(JSON.stringify([text, `${text}1.10`])))),
  of(
    'withMeta and withoutOwnKeys',
    (text) => ({
      _meta: { ...keyed(text), 'tollgate/x': 1 },
      content: parts(text).map((part) => ({ type: 'text', text: part, _meta: { 'Tollgate/y': part } })),
    }),
    (value) => [withMeta(parseJsonDoc(JSON.stringify(value)) as never, '"tollgate/a":1'), withoutOwnKeys(value)],
  ),
  ofText('spills', async (text) => {
    const { handle } = spills.put(text, SPILL_OWNER, { effect: {} as never, labels: [], maxBytes: 1 << 26 });
    const pages = await Promise.all(
      [{}, { offset: 3 }, { action: 'search', pattern: 'a*b' }].map((args) =>
        spills.read({ path: handle, ...args }, SPILL_OWNER, { bytes: 30_000, lines: 2_000 }),
      ),
    );
    spills.forget(SPILL_OWNER);
    return pages;
  }),
  of(
    'the input of the policy',
    (text) => callInput(JSON.stringify({ text, l: parts(text) })),
    (input) => [true, false].map((project) => callInputText(input, { project })),
  ),
  of(
    'the input of the policy, a text with escapes',
    (text) => callInput(JSON.stringify({ text: JSON.stringify(JSON.stringify(text)) })),
    (input) => callInputText(input, { project: true }),
  ),
  of(
    'bindArgs',
    (text) => parseJsonDoc(JSON.stringify({ l: [], n: 1, more: parts(text) }).replace('"more"', '"mo\\u0072e"')),
    (doc) =>
      bindArguments(doc, {
        schema: loose,
        validator: looseCheck,
        lift: (args) => ({ args, changed: false }),
        pins: { n: 2 },
        maxBytes: 1 << 26,
      }),
  ),
  of(
    'effectOf',
    (text) => ({ path: text, more: keyed(text), url: text, command: text, list: few(text) }),
    (args) =>
      effectOf(
        {
          server: 's',
          tool: 't',
          semantics: { verb: 'execute', paths: ['path', 'list'], urls: ['url'], command: 'command' },
          args,
        } as never,
        '/nonexistent-root',
      ),
  ),
  ofText('the body and the lines of the wire', (text) => {
    const lines = new LineWriter(new Writable({ write: (_chunk, _encoding, done) => done() }), () => undefined);
    for (const part of [text, ...few(text)]) lines.write(JSON.stringify(part));
    return lines.finish(0);
  }),
  ofText('EventStreamReader', (text) => {
    const reader = new EventStreamReader({ maxBytes: 1 << 26, onMessage: () => undefined });
    const bytes = Buffer.from(`data: ${text}\n\n`);
    for (let at = 0; at < bytes.length; at += 1_000) reader.push(bytes.subarray(at, at + 1_000));
  }),
  ofText('carriedByDouble', (text) => [
    fitsDouble(`1${text}`),
    fitsDouble(`0.${text.replace(/[^0-9]/g, '0')}1`),
    fitsDouble(`${text.replace(/[^0-9]/g, '1')}e5`),
  ]),
  ofText('marks of hidden text (lint)', (text) => [
    fold(text),
    unleet(text),
    isConfusable(text),
    hiddenMessage(text),
    decodedBlobs(text),
  ]),
  ofText('lintTool', (text) => lintTool(tool(text))),
  of(
    'lintTool, names of others',
    (text) => ({ text, names: { own: new Set(['x']), others: new Map(few(text).map((part) => [part, 's'])) } }),
    ({ text, names }) => lintTool(tool(text), names as never),
  ),
  of(
    'the code of an interpreter',
    (text) => text.split(/[\s,;]/),
    (words) => [
      inlineCode(words),
      inlineCode(['env', ...words]),
      inlineCode(['python3', ...words]),
      codeSource(['perl', words.join('')]),
      isLiteralCommand(words),
      isLiteralCommand(['ls', ...words]),
    ],
  ),
  ofText('the name of an interpreter', (text) => [
    interpreterName(text),
    interpreterName(`a${text}`),
    startedBy([text, text]),
    startedBy(['env', '-S', text]),
  ]),
  ofText('ignore files', (text) => {
    const rules = parseIgnore(text, '');
    return Promise.all([
      isIgnored(rules, { path: 'a/b/c', isFolder: false }, new TimeSlices()),
      isIgnored(parseIgnore('*a*b\n**/x/**\n', ''), { path: text, isFolder: true }, new TimeSlices()),
    ]);
  }),
  of(
    'Hits',
    (text) => text.split('\n'),
    (lines) => {
      const hits = new SearchHits();
      for (const [at, line] of lines.entries())
        if (!hits.add({ path: line.slice(0, 40), line: at + 1, text: line, matches: at % 2 === 0 })) break;
      return hits.page({}, 3);
    },
  ),
];

/**
 * Rows that only `npm run fuzz` runs. `project` takes a quarter of a second for a schema of 64 kB, because it checks
 * the projection with generated values. Definitions are read when a server starts, not in calls.
 */
export const SLOW_TARGETS: readonly Target[] = [
  of(
    'project',
    (text) => ({
      type: 'object',
      properties: Object.fromEntries(
        few(text).map((part, at) => [
          `p${at}${part.slice(0, 9)}`,
          { type: ['string', 'null'], enum: parts(text).slice(0, 20), description: part },
        ]),
      ),
    }),
    (schema) => projectSchema(schema, profile),
  ),
];
