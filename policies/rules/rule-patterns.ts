/** Compiles the patterns of YAML rules to the cheapest form that wasm matches exactly. Refuses misleading patterns. */
import { parseHost } from '../../catalogs/readers/hosts.ts';
import { globProblem, patternProblem } from '../../catalogs/readers/path-globs.ts';
import { canonicalPath, canonicalUri, portOf } from '../../catalogs/readers/urls.ts';

/** What lib/match.rego matches. A text matches if it matches any of the forms; an absent form matches nothing. */
export interface PatternForms {
  all?: true;
  equal?: Record<string, true>;
  prefix?: string[];
  suffix?: string[];
  contain?: string[];
  /** RE2, anchored. */
  regex?: string[];
}

/** Thrown for a refused pattern. The message says what to write. */
export class PatternError extends Error {}

/** Adds a pattern in which `*` stands for any characters. */
export function addText(forms: PatternForms, pattern: string): void {
  refuseForeign(pattern);
  const parts = pattern.split('*');
  const [first = '', last = ''] = [parts[0], parts.at(-1)];
  if (parts.length === 1) (forms.equal ??= nullMap())[pattern] = true;
  else if (parts.every((part) => part === '')) forms.all = true;
  else if (parts.length === 2 && last === '') (forms.prefix ??= []).push(first);
  else if (parts.length === 2 && first === '') (forms.suffix ??= []).push(last);
  else if (parts.length === 3 && first === '' && last === '') (forms.contain ??= []).push(parts[1] ?? '');
  else (forms.regex ??= []).push(`^${parts.map(quoteRegex).join('(?s:.*)')}$`);
}

/** Whether the outer pattern matches everything that the inner text or pattern matches. Only `*` can match a `*`. */
export function patternCovers(outer: string, inner: string): boolean {
  return new RegExp(`^${outer.split('*').map(quoteRegex).join('.*')}$`, 's').test(inner);
}

const PRIMITIVES: ReadonlySet<string> = new Set(['read', 'write', 'edit', 'bash']);

/** Splits a `server.tool` pattern at its first dot, because the name of a server has no dot. */
export function splitTool(pattern: string): readonly [server: string, tool: string] {
  const dot = pattern.indexOf('.');
  if (dot < 1 || dot === pattern.length - 1)
    throw new PatternError(
      `"${pattern}" is not a tool: write ` +
        `server.tool${PRIMITIVES.has(pattern) ? `, here workspace.${pattern}` : ''}, or server.* for ` +
        'all tools of a server',
    );
  const [server, tool] = [pattern.slice(0, dot), pattern.slice(dot + 1)];
  refuseForeign(pattern);
  if (/^\*+$/.test(server) && /^\*+$/.test(tool))
    throw new PatternError(`"${pattern}" matches every tool: remove \`tools\` to mean all of them`);
  return [server, tool];
}

/** Adds a host: exact, `*.example.org` for its subdomains (not itself), or `*` for any. */
export function addHost(forms: PatternForms, pattern: string): void {
  if (pattern === '*') {
    forms.all = true;
    return;
  }
  const bare = pattern.startsWith('*.') ? pattern.slice(2) : pattern;
  if (!/^[a-z0-9_-]+(\.[a-z0-9_-]+)*$|^\[[0-9a-f:.]+\]$/.test(bare)) {
    throw new PatternError(
      `"${pattern}" is not a host: write it in lower case without scheme, port or path, such as ` +
        'api.example.org or *.example.org',
    );
  }
  const read = parseHost(bare);
  const spelling = read === undefined ? undefined : read.kind === 'ipv6' ? `[${read.host}]` : read.host;
  if (read === undefined || (read.kind !== 'name' && bare !== pattern))
    throw new PatternError(
      `"${pattern}" can match no host: write a host name, a dotted IPv4 address or an [IPv6 address]`,
    );
  if (spelling !== bare) throw new PatternError(`"${pattern}" can match no host: write it as ${spelling}`);
  if (bare === pattern) (forms.equal ??= nullMap())[bare] = true;
  else (forms.suffix ??= []).push(`.${bare}`);
}

/** Adds `scheme://host[:port][/path]`. Absent port: the scheme's default port. Absent path: any path. */
export function addUrl(forms: PatternForms, pattern: string): void {
  const [, scheme, host = '', port, path] =
    /^([a-z][a-z0-9+.-]*):\/\/(\[[0-9a-f:.]+\]|[^/:@?#]+)(?::(\d{1,5}|\*))?(\/[^#]*)?$/.exec(pattern) ?? [];
  if (scheme === undefined)
    throw new PatternError(
      `"${pattern}" is not a URL: write scheme://host/path, such as https://api.example.org/v1/**`,
    );
  addHost({}, host);
  const rest = urlPath(pattern, path);
  if (!host.includes('*') && port !== '*')
    return addAddress(forms, `${scheme}://${host}:${port ?? portOf(scheme)}`, rest);
  const hostRegex = quoteRegex(host).replace('\\*', '[^/]*');
  const portRegex = port === '*' ? '[0-9]+' : (port ?? portOf(scheme));
  const start = `${quoteRegex(scheme)}://${hostRegex}:${portRegex}/`;
  (forms.regex ??= []).push(`^${start}${rest.join('/') === '**' ? '(?s:.*)' : pathRegex(rest)}$`);
}

/** Returns the segments of the path; none for `/`. */
function urlPath(pattern: string, path: string | undefined): readonly string[] {
  if (path === undefined) return ['**'];
  if (path === '/') return [];
  if (path !== canonicalPath(path))
    throw new PatternError(`"${pattern}" can match no path: write it as ${canonicalPath(path)}`);
  return splitPath(path);
}

function addAddress(forms: PatternForms, base: string, path: readonly string[]): void {
  const text = [base, ...path].join('/');
  if (path.length === 0) (forms.equal ??= nullMap())[`${base}/`] = true;
  else if (path.length === 1 && path[0] === '**') (forms.prefix ??= []).push(`${base}/`);
  else if (!text.includes('*')) (forms.equal ??= nullMap())[text] = true;
  else if (!/^[^*]+\/\*\*$/.test(text) || !addCommonPath(forms, text))
    (forms.regex ??= []).push(`^${quoteRegex(base)}/${pathRegex(path)}$`);
}

/** Adds a glob of URIs: `scheme:…`, in which `*` matches within a segment and `**` across segments. */
export function addUri(forms: PatternForms, pattern: string): void {
  refuseForeign(pattern);
  if (!/^[a-z][a-z0-9+.-]*:/.test(pattern))
    throw new PatternError(`"${pattern}" is not a URI: begin it with a scheme in lower case, as in docs://manual/**`);
  const plain = canonicalUri(pattern);
  if (plain !== pattern)
    throw new PatternError(
      plain === ''
        ? `"${pattern}" can match no URI: write it as RFC 3986 says, without empty, "." and ".." parts, and file:///…`
        : `"${pattern}" can match no URI: write it as ${plain}`,
    );
  const segments = pattern.split('/');
  if (segments.some((segment) => segment !== '**' && segment.includes('**')))
    throw new PatternError(`"${pattern}": ** must stand alone between slashes`);
  addSegments(forms, segments);
}

/** Forms for paths inside the workspace (relative) and outside it (absolute); see PathFact. */
export interface PathForms {
  readonly inside: PatternForms;
  readonly outside: PatternForms;
}

/**
 * Adds a path glob. `*` matches within a segment; `**` matches any number of segments, also none. A glob without a
 * leading `/` is relative to the workspace. With `strict` (deny and ask), a glob that begins with `**` also matches
 * outside it. An absolute glob also matches what it covers in the workspace. Otherwise a rule on /home would miss those
 * paths.
 */
export function addPath(forms: PathForms, glob: string, options: { strict: boolean; workspace: string }): void {
  const { inside, outside } = placePath(glob, options);
  for (const segments of inside) addSegments(forms.inside, segments);
  for (const segments of outside) addSegments(forms.outside, segments);
}

/** Returns the segments of a path glob on each side; see addPath. Throws PatternError. */
export function placePath(
  glob: string,
  { strict, workspace }: { strict: boolean; workspace: string },
): { readonly inside: readonly (readonly string[])[]; readonly outside: readonly (readonly string[])[] } {
  const segments = splitPath(glob);
  if (glob.startsWith('/'))
    return {
      inside: remainders(
        segments,
        workspace.split('/').filter((part) => part !== ''),
      ),
      outside: [['', ...segments]],
    };
  return { inside: [segments], outside: strict && segments[0] === '**' ? [segments] : [] };
}

function splitPath(glob: string): readonly string[] {
  const problem = globProblem(glob);
  if (problem !== undefined) throw new PatternError(problem);
  const segments = glob.replace(/^\//, '').split('/');
  return segments.filter((segment, index) => segment !== '**' || segments[index - 1] !== '**');
}

/** Returns what remains of a glob after the folders of `home` are removed from its start. */
function remainders(segments: readonly string[], home: readonly string[]): readonly (readonly string[])[] {
  const [first, ...rest] = segments;
  const [folder, ...inner] = home;
  if (folder === undefined) return segments.length === 0 ? [] : [segments];
  if (first === undefined) return [];
  if (first === '**') return [...remainders(segments, inner), ...remainders(rest, home)];
  return new RegExp(`^${segmentRegex(first)}$`).test(folder) ? remainders(rest, inner) : [];
}

function addSegments(forms: PatternForms, segments: readonly string[]): void {
  const text = segments.join('/');
  if (text === '**') forms.all = true;
  else if (!text.includes('*')) (forms.equal ??= nullMap())[text] = true;
  else if (!addCommonPath(forms, text)) (forms.regex ??= []).push(`^${pathRegex(segments)}$`);
}

/**
 * Adds a common glob without a regular expression: a folder and all below it, or a name, ending or folder at any depth.
 */
function addCommonPath(forms: PatternForms, text: string): boolean {
  const front = /^([^*]+)\/\*\*$/.exec(text)?.[1];
  const name = /^\*\*\/([^*]+)$/.exec(text)?.[1];
  const ending = /^\*\*\/\*([^*/]+)$/.exec(text)?.[1];
  const folder = /^\*\*\/([^*]+)\/\*\*$/.exec(text)?.[1];
  const base = front ?? name ?? folder;
  if (ending !== undefined) (forms.suffix ??= []).push(ending);
  if (base !== undefined) (forms.equal ??= nullMap())[base] = true;
  if (front !== undefined || folder !== undefined) (forms.prefix ??= []).push(`${base}/`);
  if (name !== undefined || folder !== undefined) (forms.suffix ??= []).push(`/${base}`);
  if (folder !== undefined) (forms.contain ??= []).push(`/${folder}/`);
  return ending !== undefined || base !== undefined;
}

function pathRegex(segments: readonly string[]): string {
  return segments.reduce((regex, segment, index) => {
    const isLast = index === segments.length - 1;
    if (segment === '**') return regex + (isLast ? '(?:/(?s:.*))?' : '(?:(?s:.*)/)?');
    const endsInStars = index === segments.length - 2 && segments[index + 1] === '**';
    return regex + segmentRegex(segment) + (isLast || endsInStars ? '' : '/');
  }, '');
}

function segmentRegex(segment: string): string {
  return segment.split('*').map(quoteRegex).join('[^/]*');
}

function quoteRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

/**
 * Refuses the syntax of other glob dialects. Taken literally it would match nothing, and a deny rule would not deny.
 */
function refuseForeign(pattern: string): void {
  const problem = patternProblem(pattern);
  if (problem !== undefined) throw new PatternError(problem);
}

/** Returns an empty object without a prototype. Keys come from files, so `__proto__` must be an ordinary key. */
export function nullMap<T>(): Record<string, T> {
  return Object.create(null) as Record<string, T>;
}
