/** Everything that reads bytes of a client or a server, as functions of one text. A new parser, validator or shaper gets a row here. */
import { readHello } from '../../adapters/egress/hello.ts';
import { readAbsolute } from '../../adapters/egress/forward.ts';
import { applyEdit } from '../../adapters/internal/edit.ts';
import { textOfHtml } from '../../adapters/internal/fetch/html.ts';
import { compileGlob } from '../../adapters/internal/globs.ts';
import { nearestPlaces } from '../../adapters/internal/nearest.ts';
import { occurrences } from '../../adapters/internal/occurrences.ts';
import { OutputLog } from '../../adapters/internal/output.ts';
import { countLines, decodeText, printable } from '../../adapters/internal/text.ts';
import { around, linesOf } from '../../adapters/internal/write.ts';
import { widen } from '../../adapters/mapped/edit.ts';
import { findMarks, quote } from '../../adapters/mapped/marks.ts';
import { LineReader, oneLine } from '../../adapters/rpc/framing.ts';
import { members, parseDoc, readMessage } from '../../adapters/rpc/json.ts';
import { readNoisy } from '../../adapters/rpc/noise.ts';
import { auditTool } from '../../catalogs/audit.ts';
import { parseAuthority, parseHost } from '../../catalogs/hosts.ts';
import { exposedNames } from '../../catalogs/names.ts';
import { holdsNote, pageText } from '../../catalogs/paging.ts';
import { locate } from '../../catalogs/paths.ts';
import { canonicalJson, pinsOf } from '../../catalogs/pin.ts';
import { canonicalize } from '../../catalogs/projection/canonical.ts';
import { parseText } from '../../catalogs/projection/lift.ts';
import { loadSchemaProfile, project } from '../../catalogs/projection/project.ts';
import { otherReadings } from '../../catalogs/readings.ts';
import { segmentEnds } from '../../catalogs/segments.ts';
import { cleanDescription, escapeHostile, toolDescription } from '../../catalogs/text.ts';
import type { ContentItem, RawTool } from '../../catalogs/tool.ts';
import { readUrl } from '../../catalogs/urls.ts';
import { createValidator, formatFaults, repairArgs } from '../../catalogs/validate.ts';
import { guardPattern, isPlain } from '../../catalogs/validation/guard.ts';
import { cutText, fits } from '../../facade/output/cut.ts';
import { Redactor } from '../../facade/output/redact.ts';
import { shape } from '../../facade/output/shape.ts';
import { shrink } from '../../facade/output/shrink.ts';
import { commandFact } from '../../facade/shell.ts';

/** One reader. */
export interface Target {
  readonly name: string;
  readonly run: (text: string) => unknown;
}

const redactor = new Redactor();
for (const secret of ['aaaaaaab', 'k"y\\/1\n+é-secret']) redactor.register(secret);
const profile = loadSchemaProfile('portable');

const tool = (text: string, inputSchema: Record<string, unknown> = { type: 'object' }): RawTool => ({ name: 'tool', description: text, inputSchema });
/** Lists, objects and texts made of one text, by its lines: growth in number, not only in length. */
const parts = (text: string): readonly string[] => text.split(/[\n,]/).slice(0, 20_000);
const keyed = (text: string): Record<string, string> => Object.fromEntries(parts(text).map((part, at) => [`${at}${part.slice(0, 20)}`, part]));

function shaped(content: readonly ContentItem[], more: Readonly<Record<string, unknown>> = {}): unknown {
  const value = { content, ...more };
  const text = JSON.stringify(value);
  return shape({ text, value, exact: true }, { cap: { bytes: 30_000, lines: 2_000 }, headShare: 0.3, redactor, raw: false, reader: 'read', spill: { put: (all) => ({ handle: 'spill://x', bytes: all.length }) }, meta: { 'tollgate/a': 1 }, ownNotes: true, notes: [] });
}

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
  return 'refusal' in outcome ? outcome : [linesOf(outcome.text, outcome), around(outcome.text, outcome.places)];
};

const FORMATS = ['date', 'time', 'date-time', 'duration', 'uri', 'uri-reference', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid', 'json-pointer', 'regex'];
const PATTERNS = ['^[a-z]+$', 'a.c', '^.*$', '^(a+)+$', '(a|aa)*b', 'x{1,500}y', '\\s+$'];
const one = (schema: Record<string, unknown>): ((text: string) => unknown) => {
  const { check } = createValidator({ type: 'object', properties: { x: schema } });
  return (text) => formatFaults(check({ x: text }));
};
const listed = createValidator({ type: 'object', properties: { l: { type: 'array', items: { anyOf: [{ type: 'string', maxLength: 3 }, { type: 'object', required: ['a'] }] }, uniqueItems: true }, o: { type: 'object', additionalProperties: { type: 'integer' }, propertyNames: { maxLength: 9 } } } });
const loose = { type: 'object', properties: { l: { type: 'array', items: { type: 'object' } }, n: { type: 'integer' }, o: { type: 'object', properties: { a: { type: 'string' } } } } };

/** The rows that the gate runs. */
export const TARGETS: readonly Target[] = [
  { name: 'readMessage of a client', run: (text) => readMessage(Buffer.from(text), 'client') },
  { name: 'readMessage of a server', run: (text) => readMessage(Buffer.from(text), 'server') },
  { name: 'readNoisy', run: (text) => readNoisy(Buffer.from(`log: ${text}`)) },
  { name: 'parseDoc', run: (text) => parseDoc(text) },
  { name: 'members', run: (text) => members(text) },
  { name: 'LineReader, whole', run: (text) => read(text, 65_536) },
  { name: 'LineReader, in slices of 7 bytes', run: (text) => read(text, 7) },
  { name: 'oneLine', run: (text) => oneLine(text) },
  { name: 'readHello', run: (text) => [readHello(Buffer.from(text)), readHello(Buffer.concat([Buffer.from([22, 3, 1, 0, 9, 1]), Buffer.from(text, 'latin1')])), readHello(Buffer.from(`${'\u0016\u0003\u0001\u0000\u0001x'.repeat(text.length / 6)}`, 'latin1'))] },
  { name: 'readAbsolute', run: (text) => readAbsolute(`http://${text}`) },
  { name: 'commandFact', run: (text) => commandFact(text) },
  { name: 'readUrl', run: (text) => [readUrl(text), readUrl(`http://a/${text}`)] },
  { name: 'parseHost and parseAuthority', run: (text) => [parseHost(text), parseAuthority(text), parseAuthority(`[${text}`)] },
  { name: 'otherReadings', run: (text) => otherReadings(text) },
  { name: 'locate', run: (text) => locate(['/nonexistent-root'], text) },
  { name: 'segmentEnds', run: (text) => segmentEnds(text) },
  { name: 'escapeHostile', run: (text) => escapeHostile(text) },
  { name: 'cleanDescription', run: (text) => [cleanDescription(text, { max: 1_024 }), cleanDescription(text, { max: 10_000_000 })] },
  { name: 'toolDescription', run: (text) => toolDescription({ name: text, description: text, hints: [text] }) },
  { name: 'auditTool, the description', run: (text) => auditTool(tool(text)) },
  { name: 'auditTool, the schema', run: (text) => auditTool(tool('x', { type: 'object', properties: Object.fromEntries(parts(text).slice(0, 500).map((part, at) => [`p${at}`, { type: 'string', description: part }])) })) },
  { name: 'occurrences', run: (text) => [1, 40, text.length / 4].map((length) => occurrences(text, { wanted: text.slice(-length), overlap: true, most: 100_000 })) },
  { name: 'applyEdit, replace all', run: (text) => edit(text, { old_string: text.slice(0, 2), new_string: 'xyz', replace_all: true }) },
  { name: 'applyEdit, a long text', run: (text) => edit(text, { old_string: `${text.slice(0, text.length / 4)}b${text.slice(0, text.length / 4)}`, new_string: 'x' }) },
  { name: 'applyEdit, other line ends and numbers', run: (text) => edit(text, { old_string: `1: ${text.slice(0, 50).replaceAll('\n', '\r\n')}\n2: `, new_string: 'x\ny', line: 3 }) },
  { name: 'nearestPlaces', run: (text) => nearestPlaces(text, `${text.slice(0, 80)}x`) },
  { name: 'compileGlob, the pattern', run: (text) => { const glob = compileGlob(text.slice(0, 1_000)); return glob('a/b/c.ts'); } },
];

/** The rows that take longer: `npm run fuzz` runs them too. */
export const SLOW_TARGETS: readonly Target[] = [
  { name: 'readMessage, the text as a value', run: (text) => readMessage(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: text, arguments: keyed(text) } })), 'client') },
  { name: 'exposedNames', run: (text) => exposedNames(parts(text).slice(0, 5_000).map((part) => ({ server: 's', tool: part.slice(0, 100) }))) },
  { name: 'pinsOf', run: (text) => pinsOf(parts(text).map((part) => ({ ...tool('x'), name: part.slice(0, 5) }))) },
  { name: 'canonicalJson', run: (text) => canonicalJson(keyed(text)) },
  { name: 'canonicalize', run: (text) => canonicalize({ type: 'object', properties: keyed(text), required: parts(text), enum: parts(text) }) },
  { name: 'project', run: (text) => project({ type: 'object', properties: Object.fromEntries(parts(text).slice(0, 500).map((part, at) => [`p${at}${part.slice(0, 9)}`, { type: ['string', 'null'], enum: parts(text).slice(0, 20), description: part }])) }, profile) },
  { name: 'parseText', run: (text) => parseText(text) },
  { name: 'pageText', run: (text) => [pageText(text, { offset: 1, limit: 50, bytes: 30_000, lines: 2_000 } as never, 'x'), holdsNote(text)] },
  ...FORMATS.map((format) => ({ name: `format ${format}`, run: one({ type: 'string', format }) })),
  ...PATTERNS.map((pattern) => ({ name: `pattern ${pattern}`, run: one({ type: 'string', pattern }) })),
  { name: 'maxLength, enum and const', run: one({ type: 'string', maxLength: 5, enum: ['a', 'b'], const: 'c' }) },
  { name: 'patterns of others', run: (text) => [isPlain(text.slice(0, 2_000)), guardPattern(text.slice(0, 2_000))?.test('aaaa')] },
  { name: 'a list and an object of values', run: (text) => formatFaults(listed.check({ l: parts(text), o: keyed(text) })) },
  { name: 'repairArgs', run: (text) => { const args = { l: parts(text), n: text, o: text }; return repairArgs(loose, args, createValidator(loose).check(args)); } },
  { name: 'widen', run: (text) => widen(text, `${text.slice(0, text.length / 2)}x${text.slice(text.length / 2)}`, { start: Math.floor(text.length / 2), end: Math.floor(text.length / 2) + 1 }) },
  { name: 'compileGlob, the path', run: (text) => ['**/a*b/**', '*a*b*', '{a,b}*/[!x]*'].map((glob) => compileGlob(glob)(text)) },
  { name: 'textOfHtml', run: (text) => textOfHtml(text) },
  { name: 'OutputLog', run: (text) => { const log = new OutputLog(); for (let at = 0; at < text.length; at += 1_024) log.push(Buffer.from(text.slice(at, at + 1_024))); return log.lines(1, 2_000); } },
  { name: 'marks', run: (text) => [findMarks(text.split('\n'), 'token'), quote(text)] },
  { name: 'decodeText', run: (text) => { const bytes = Buffer.from(text); return [decodeText(bytes), countLines(text), printable(text)]; } },
  { name: 'cutText', run: (text) => (fits(text, { bytes: 3_000, lines: 20 }) ? text : cutText(text, { bytes: 3_000, lines: 20 }, 0.3)) },
  { name: 'Redactor', run: (text) => [redactor.touches(text), redactor.redact(text)] },
  { name: 'shape, one text', run: (text) => shaped([{ type: 'text', text }]) },
  { name: 'shape, many items', run: (text) => shaped(parts(text).map((part) => ({ type: 'text', text: part }))) },
  { name: 'shape, resources and unknown members', run: (text) => shaped(parts(text).slice(0, 500).map((part) => ({ type: 'resource_link', uri: `file:${part}`, name: part })), { more: text, _meta: keyed(text) }) },
  { name: 'shape, structured content', run: (text) => shaped([], { structuredContent: keyed(text) }) },
  { name: 'shrink', run: (text) => [shrink({ text, l: parts(text) }, 3_000), shrink(keyed(text), 3_000), shrink(parts(text).map((part) => ({ [part.slice(0, 9)]: part })), 3_000)] },
];
