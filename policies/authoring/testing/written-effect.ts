/** Completes an effect that an author writes, in a suite or on the command line. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { canonicalUri, readUrl } from '../../../catalogs/readers/urls.ts';
import { type CallInput, type Effect, type PathFact, REQUEST_KINDS, type UrlFact } from '../../port.ts';
import { suggest } from '../../rules/policy-problems.ts';

/** An effect as it is written. policies/schemas/suite.json describes the fields. */
export interface WrittenEffect extends Partial<Omit<Effect, 'server' | 'paths' | 'urls'>>, Pick<Effect, 'server'> {
  readonly paths?: readonly (Partial<PathFact> & Pick<PathFact, 'path' | 'inside'>)[];
  readonly urls?: readonly (Partial<UrlFact> & Pick<UrlFact, 'url' | 'host'>)[];
  readonly args?: Readonly<Record<string, unknown>>;
}

/** Returns what is missing in an effect, or does not belong there, by its key; undefined if it is complete. */
export function effectFault({
  kind = 'tool',
  verb,
  tool,
  uri,
  asks,
}: WrittenEffect): { readonly key: string; readonly message: string } | undefined {
  if (kind === 'tool' && verb === undefined) return { key: 'verb', message: 'a call of a tool needs `verb`; add it.' };
  if (tool === undefined && (kind === 'tool' || kind === 'prompt'))
    return { key: 'tool', message: `the name of the ${kind} is missing; add \`tool\`.` };
  const [key] = kind === 'tool' ? Object.entries({ uri, asks }).flatMap(([name, it]) => (it ? [name] : [])) : [];
  return key === undefined ? undefined : { key, message: `a call of a tool has no \`${key}\`; write its \`kind\`.` };
}

/**
 * Returns the effect with the defaults of its kind, and its arguments as text. A `file:` URI gives a path and an http
 * URI a URL, unless they are written. Links are not resolved. `workspace` is absolute.
 */
export function completeEffect(written: WrittenEffect, workspace: string): Pick<CallInput, 'effect' | 'argsText'> {
  const { args = {}, kind = 'tool', paths, urls, verb, tool, ...rest } = written;
  const { uri } = rest;
  const defaults = kind === 'tool' ? { verb: 'destructive' as const } : REQUEST_KINDS[kind];
  const effect: Effect = {
    ...rest,
    kind,
    verb: verb ?? defaults.verb,
    tool: tool ?? ('method' in defaults ? defaults.method : undefined) ?? '',
    paths: (paths ?? pathsOfUri(uri, workspace)).map((fact) => ({ argument: '', ...fact })),
    urls: (urls ?? urlsOfUri(uri)).map((fact) => ({ argument: '', scheme: readUrl(fact.url).scheme, ...fact })),
  };
  return { effect, argsText: JSON.stringify(args) };
}

function pathsOfUri(uri: string | undefined, workspace: string): readonly PathFact[] {
  if (uri === undefined || !/^file:/i.test(uri)) return [];
  // A path that cannot be read matches each rule that denies or asks.
  if (canonicalUri(uri) === '') return [{ argument: 'uri', path: uri, inside: false }];
  const path = decodeURIComponent(new URL(uri).pathname);
  const inside = isPathWithin(path, workspace);
  return [{ argument: 'uri', path: inside ? path.slice(workspace.length).replace(/^\//, '') || '.' : path, inside }];
}

function urlsOfUri(uri: string | undefined): readonly UrlFact[] {
  return uri === undefined || !/^https?:/i.test(uri) ? [] : [{ argument: 'uri', url: uri, ...readUrl(uri) }];
}

/** The request that `policy why` explains: `KIND:SERVER`, and a URI, the name of a prompt, or JSON with more fields. */
export interface WrittenRequest {
  readonly target: string;
  readonly detail?: string;
}

/** Returns the effect of a request on the command line. Throws USAGE. */
export function readWrittenRequest(
  { target, detail = '{}' }: WrittenRequest,
  {
    workspace,
    findFaults,
  }: { readonly workspace: string; readonly findFaults: (effect: unknown) => readonly string[] },
): Pick<CallInput, 'effect' | 'argsText'> {
  const [kind = '', server = ''] = target.split(/:(.*)/s);
  if (!Object.hasOwn(REQUEST_KINDS, kind)) {
    const known = Object.keys(REQUEST_KINDS);
    throw usage(`There is no kind "${kind.slice(0, 40)}" of requests.${suggest(kind, known)}`, known.join(', '));
  }
  const fields = detail.startsWith('{') ? parseFields(detail) : { [kind === 'prompt' ? 'tool' : 'uri']: detail };
  const effect = { ...fields, kind, server } as WrittenEffect;
  const [fault] = [...findFaults(effect), ...[effectFault(effect)?.message ?? []].flat()];
  if (fault !== undefined) throw usage(fault, 'the keys of `effect` in a suite');
  return completeEffect(effect, workspace);
}

function parseFields(text: string): object {
  try {
    return JSON.parse(text) as object;
  } catch {
    throw usage('The fields of the request are not JSON.', 'an object, such as {"asks": {"mode": "form"}}');
  }
}

function usage(detail: string, what: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: `Write one of: ${what}.` });
}
