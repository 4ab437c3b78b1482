/**
 * The two screens of an approval: what would run, and what its tools are. They are complete, show of the environment
 * only paths and what chooses settings or programs, and escape characters that could deceive a reader.
 */
import path from 'node:path';
import type { AuditFinding } from '../../../catalogs/lint/definition-audit.ts';
import { LINT_MEANINGS } from '../../../catalogs/lint/lint-rules.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { ServerConfig } from '../../config/config.ts';
import { isSecretName, isToken } from '../../config/servers/secret-shapes.ts';
import { isConfigVariable } from '../../config/servers/spawn-rules.ts';
import type { FieldChange, ReviewedTool, StartReview, ToolReview } from '../../consent/servers/consent-review.ts';
import { changeWords, type ReviewedChange } from '../../consent/servers/start-changes.ts';
import type { StartFacts } from '../../consent/servers/start-facts.ts';
import { secretsIn } from '../../secrets/secret-uses.ts';
import { plural, printable } from '../print.ts';
import { letterMarks } from '../terminal-rows.ts';
import { definitionLines, MAX_TEXT } from './definition-texts.ts';

/** A longer list of tools ends with a summary. */
const MANY = 10;
/** A longer text is shown with its length. */
const LONG = 200;

/** Returns the screen of what would run. */
export function startScreen(
  server: ServerConfig,
  { facts, hash, approved, changes, remarks, folders = [] }: StartReview,
): string {
  const { command, args, url, socket, program, scripts = [], folder, mapping, semantics = [] } = facts;
  return lines([
    `Server ${server.name} (from ${printable(server.source)})`,
    ...(command === undefined
      ? []
      : [`  command  ${quoted(command)}`, ...args.map((arg, index) => `  args[${index}]  ${quoted(arg)}`)]),
    ...(server.transport !== 'stdio' || server.isolation === 'container'
      ? []
      : program === undefined
        ? ['  program  not found']
        : [`  program  ${quoted(program.path)}`, `  sha256   ${program.sha256}`]),
    ...scriptRows(scripts),
    ...(folder === undefined ? [] : [`  folder   ${quoted(folder)}`]),
    ...(url === undefined ? [] : [`  url      ${quoted(url)}`]),
    ...(socket === undefined ? [] : [`  socket   ${quoted(socket)}`]),
    ...envRows(server.env, folders, (name) => server.filled?.[`env.${name}`]),
    ...Object.entries(server.environments ?? {}).flatMap(([profile, env]) =>
      envRows(env, folders, (name) => server.filled?.[`environments.${profile}.${name}`]).map(
        (row) => `${row}  (profile ${profile})`,
      ),
    ),
    ...scriptRows(newScripts(facts)),
    ...Object.entries(server.headers).map(([name, value]) => maskedRow('header', name, value)),
    ...Object.keys(server.secretSources ?? {}).map(
      (name) => `  secret   ${printable(name)} comes from ${sourceText(server.secretSources?.[name])}`,
    ),
    ...isolationLines(server, facts.given).map(
      (line, index) => `${index === 0 ? '  rights   ' : '           '}${line}`,
    ),
    ...(mapping === undefined ? [] : [`  mapping  ${quoted(mapping)}`]),
    ...semantics.map((rule) => `  tools    ${quoted(rule)}`),
    ...remarks.map((remark) => `  ! ${printable(remark)}`),
    ...(changes.length === 0
      ? []
      : ['  changed since it was approved:', ...changes.map((change) => `    ${changeText(change)}`)]),
    `  start hash  ${hash}`,
    ...(approved === undefined
      ? []
      : [`  approved by ${printable(approved.by)} (${approved.at}), and not changed since`]),
  ]);
}

/** Returns the screen of the tools. It shows unchanged tools too, because tools work together. */
export function toolsScreen(
  server: ServerConfig,
  { tools, removed, texts, unfit, hash, version, set }: ToolReview,
): string {
  const versionText = version === '' ? '' : ` (version ${printable(version)})`;
  const hints = set.hints ? '; its hints about them count (trustHints)' : '';
  return lines([
    `Server ${server.name} offers ${plural(tools.length, 'tool')}${versionText}${hints}`,
    ...tools.flatMap((one) => toolLines(one, set.hints)),
    ...removed.map((name) => `  - ${quoted(name)} was removed`),
    ...unfit.map(({ tool, reason }) => `  ! ${quoted(tool)} is ${QUARANTINED}: ${printable(reason)}`),
    ...texts.flatMap(({ name, text, audit, change }) => [
      `  ${printable(name)}${change === undefined ? '' : ' (changed)'}`,
      ...body(text),
      ...findings(audit),
      ...(change === undefined ? [] : diff(change)),
    ]),
    ...legend([...tools, ...texts].map(({ audit }) => audit)),
    ...(tools.length > MANY ? [`  in total    ${countsText(tools)}`] : []),
    `  tools hash  ${hash}`,
  ]);
}

/** Returns a text in quotes, with escapes for what a terminal would hide, and a note on unusual characters. */
export function quoted(text: string): string {
  const marks = [...(text.length > LONG ? [`${text.length} characters`] : []), ...letterMarks(text)];
  return `${printable(JSON.stringify(text))}${marks.length === 0 ? '' : `  (${marks.join(', ')})`}`;
}

function scriptRows(scripts: NonNullable<StartFacts['scripts']>): readonly string[] {
  return scripts.flatMap(({ path, sha256 }) => [`  script   ${quoted(path)}`, `  sha256   ${sha256}`]);
}

/** Returns the files that only the variables of profiles make the program load. */
function newScripts({ scripts = [], environments = {} }: StartFacts): NonNullable<StartFacts['scripts']> {
  const known = new Set(scripts.map(({ path }) => path));
  const all = Object.values(environments).flatMap((one) => one.scripts ?? []);
  return [...new Map(all.map((one) => [one.path, one])).values()].filter(({ path }) => !known.has(path));
}

/** Shows paths in `folders`, and what chooses settings or programs. `written`: the text of a value from outside. */
function envRows(
  env: Readonly<Record<string, string>>,
  folders: readonly string[],
  written: (name: string) => string | undefined,
): readonly string[] {
  return Object.entries(env).map(([name, value]) => {
    const isConfig = isConfigVariable(name);
    const isPath = path.isAbsolute(value) && folders.some((folder) => isPathWithin(path.normalize(value), folder));
    const isPlain = isConfig || (isPath && !isSecretName(name) && !isToken(value));
    if (!isPlain || [...secretsIn(value)].length > 0) return maskedRow('env', name, value);
    const remark = isConfig ? '  (names its settings or programs)' : '';
    return `  env      ${printable(name)} = ${quoted(written(name) ?? value)}${remark}`;
  });
}

function maskedRow(kind: string, name: string, value: string): string {
  const secrets = [...secretsIn(value)];
  const isWhole = value === `\${secret:${secrets[0]}}`;
  const held = secrets.length === 0 ? '' : ` (${isWhole ? '' : 'with '}secret ${secrets.join(', ')})`;
  return `  ${kind.padEnd(8)} ${printable(name)} = ***${held}`;
}

function sourceText(
  source:
    | {
        readonly from: string;
        readonly command?: readonly string[];
        readonly file?: string;
        readonly variable?: string;
      }
    | undefined,
): string {
  if (source?.from === 'exec') return `a program: ${(source.command ?? []).map(quoted).join(' ')}`;
  if (source?.from === 'file') return `the file ${quoted(source.file ?? '')}`;
  return source?.from === 'env' ? `the variable ${printable(source.variable ?? '')}` : 'the keychain';
}

/** Returns what the isolation of a server allows. */
function isolationLines(
  { transport, isolation = 'sandbox', sandbox, url }: ServerConfig,
  given: readonly string[] = [],
): readonly string[] {
  if (transport !== 'stdio')
    return [
      url === undefined
        ? 'runs already, outside Tollgate; its rights are not known here'
        : 'runs elsewhere; it receives the arguments of calls, and the headers above',
    ];
  if (isolation === 'direct') return ['runs with all of your rights: your files, your network, your other programs'];
  const { allowRead = [], allowWrite = [], denyRead = [], denyWrite = [] } = sandbox?.filesystem ?? {};
  const files = (list: readonly string[]): string => list.map(quoted).join(', ');
  const hosts = (list: readonly string[]): string => list.map(printable).join(', ');
  const own = isolation === 'container' ? 'its image' : "its own program, and the system's";
  const { allowedDomains: domains = [], deniedDomains: denied = [] } = sandbox?.network ?? {};
  return [
    isolation === 'container' ? `runs in a container of ${quoted(sandbox?.image ?? '')}` : 'runs in a sandbox',
    allowWrite.length === 0 ? 'writes no files' : `writes ${files(allowWrite)}`,
    `reads ${[...[...allowRead, ...given].map(quoted), own].join(', ')}`,
    ...(denyRead.length === 0 ? [] : [`never reads ${files(denyRead)}`]),
    ...(denyWrite.length === 0 ? [] : [`never writes ${files(denyWrite)}`]),
    domains.length === 0
      ? 'has no network'
      : `reaches only ${hosts(domains)}${denied.length === 0 ? '' : `, never ${hosts(denied)}`}`,
  ];
}

/** Returns one change: of a file its hashes; of a setting its values, unless they are digests. */
function changeText(change: ReviewedChange): string {
  const { what, field } = change;
  if (field === undefined) return printable(changeWords(change));
  const show = (value: unknown): string =>
    value === undefined ? 'nothing' : quoted(typeof value === 'string' ? value : JSON.stringify(value));
  const values = 'before' in change ? `: was ${show(change.before)}, is ${show(change.after)}` : '';
  return `${printable(what === field ? field : `${what} (${field})`)}${values}`;
}

function toolLines({ tool, semantics, audit, state, changes }: ReviewedTool, hints: boolean): readonly string[] {
  const isNews = state === 'new' || state === 'changed';
  const mark = state === 'new' ? '+' : state === 'changed' ? '~' : ' ';
  const meaning =
    semantics.byArgument === undefined
      ? semantics.verb
      : `${semantics.verb}, or by its argument ${semantics.byArgument.argument}`;
  const claim =
    tool.annotations?.readOnlyHint === true && semantics.verb !== 'read' && !hints
      ? ' (says read-only, which does not count without trustHints)'
      : '';
  return [
    `${mark} ${quoted(tool.name)}  ${meaning}${claim}${isNews ? `  ${state.toUpperCase()}` : ''}`,
    ...body(tool.description ?? ''),
    ...definitionLines(tool),
    ...findings(audit),
    ...changes.flatMap(diff),
  ];
}

function body(text: string): readonly string[] {
  if (text === '') return [];
  const cut = text.slice(0, MAX_TEXT);
  return [
    ...cut.split('\n').map((line) => `    | ${printable(line)}`),
    ...(text.length > MAX_TEXT ? [`    | … (${text.length} characters in total)`] : []),
  ];
}

/** The answer of the owner cannot change this. */
const QUARANTINED = 'in quarantine, whatever you answer';

function findings({ quarantine, notes }: AuditFinding): readonly string[] {
  return [
    ...(quarantine === undefined ? [] : [`    ! ${QUARANTINED}: ${printable(quarantine)}`]),
    ...notes.map(({ id, where, text }) => `    ? ${printable(`${id} in ${where}: ${text}`)}`),
  ];
}

function countsText(tools: readonly ReviewedTool[]): string {
  const counts = new Map<string, number>();
  const words = tools.flatMap(({ semantics, state, audit }) => [
    semantics.verb,
    ...(state === 'new' || state === 'changed' ? [state] : []),
    ...(audit.quarantine === undefined ? [] : ['in quarantine']),
  ]);
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return `${plural(tools.length, 'tool')}: ${[...counts].map(([word, count]) => `${count} ${word}`).join(', ')}`;
}

/** Explains each kind of note once. */
function legend(audits: readonly AuditFinding[]): readonly string[] {
  return [...new Set(audits.flatMap(({ notes }) => notes.map(({ id }) => id)))].map(
    (id) => `  ${id}: ${LINT_MEANINGS[id]}`,
  );
}

function diff({ field, old, new: fresh }: FieldChange): readonly string[] {
  return [
    `    ${printable(field)}:`,
    ...old.map((line) => `    - ${printable(line)}`),
    ...fresh.map((line) => `    + ${printable(line)}`),
  ];
}

function lines(all: readonly string[]): string {
  return `${all.join('\n')}\n`;
}
