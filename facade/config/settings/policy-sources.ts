/** Owns how an entry under `policies` becomes a source of policy; refuses sources that are not there, and addresses that anybody could answer for. */

import { readdirSync } from 'node:fs';
import path from 'node:path';
import { urlFault } from '../../../catalogs/readers/urls.ts';
import { type BundleServer, MODE_NAMES, type ModeSettings } from '../../../policies/port.ts';
import type { PolicySource } from '../config.ts';
import type { Path, Problem, ProblemReport } from '../config-problems.ts';
import { kindOf } from '../work-folders.ts';
import type { WrittenConfig, WrittenPolicySettings } from '../written-config.ts';

/** Without one, a new bundle is active a minute after it was published. */
const POLL_MS = 60_000;
const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000 };
const LOOPBACK = /^(127(\.\d{1,3}){3}|\[::1\]|localhost)$/;

/** What placing needs. `raw` is the file before variables were filled in: it tells a pasted token from a variable. */
export interface PolicyContext {
  readonly raw: unknown;
  readonly resolve: (written: string) => string;
  readonly report: ProblemReport;
  /** Where a file is read (see World in work-folders.ts). */
  readonly at: (file: string) => string;
}

/** The policies with absolute paths, their kinds and modes. */
export function placePolicies(written: WrittenConfig['policies'], context: PolicyContext): readonly PolicySource[] {
  const sources: PolicySource[] = [];
  (written ?? []).forEach((entry, index) => {
    const source =
      typeof entry === 'string'
        ? placeFile({ path: entry }, ['policies', index], context)
        : place(entry, ['policies', index], context);
    if (source === undefined) return;
    const twice = sources.some((other) => other.path === source.path);
    if (twice)
      context.report.refuse(
        typeof entry === 'string'
          ? ['policies', index]
          : ['policies', index, source.server === undefined ? 'path' : 'url'],
        'the policy appears twice; remove one',
      );
    else sources.push(source);
  });
  return sources;
}

/** Rego beside a file that is named: whoever put it there takes its rules for ones that hold. Paths are shown from `folder`. */
export function strayRego(folder: string, sources: readonly PolicySource[]): readonly Problem[] {
  const places = new Set(
    sources
      .filter(({ path: file, server }) => server === undefined && kindOf(file) === 'file')
      .map(({ path: file }) => path.dirname(file)),
  );
  const files = [...places].flatMap((place) =>
    namesIn(place)
      .filter((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'))
      .map((name) => path.join(place, name)),
  );
  const strays = files.filter(
    (file) => !sources.some((source) => file === source.path || file.startsWith(`${source.path}/`)),
  );
  return strays.sort().map((file) => ({
    file: path.relative(folder, file),
    line: 1,
    column: 1,
    message:
      'the file is not read: it lies beside a policy, but policies does not name it; name it too, or put it elsewhere',
  }));
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // What may not be listed can still be named file by file.
    return [];
  }
}

/** Files of a source that decide what is allowed. */
export function controlFilesOf({ path: file, server }: PolicySource): readonly string[] {
  return server === undefined ? [file] : (server.keys ?? []);
}

function place(entry: WrittenPolicySettings, at: Path, context: PolicyContext): PolicySource | undefined {
  const { path: file, url } = entry;
  if ((file === undefined) === (url === undefined)) {
    context.report.refuse(at, 'a policy lies either at a path or at a url; write one of them');
    return undefined;
  }
  entry.modes?.forEach(({ profile, origin }, index) => {
    if (profile === undefined && origin === undefined)
      context.report.refuse(
        [...at, 'modes', index],
        'the mode is for nobody in particular; add profile or origin, or write it as the mode of the policy',
      );
  });
  return url === undefined
    ? placeFile({ ...entry, path: file ?? '' }, [...at, 'path'], context)
    : placeServer({ ...entry, url }, at, context);
}

function placeFile(
  entry: WrittenPolicySettings & { readonly path: string },
  at: Path,
  { resolve, report, at: readAt }: PolicyContext,
): PolicySource | undefined {
  const absolute = resolve(entry.path);
  const found = kindOf(readAt(absolute));
  const kind = policyKind(entry.path, found);
  const remote = (['poll', 'token', 'verify'] as const).find((key) => entry[key] !== undefined);
  if (remote !== undefined)
    report.refuseKey([...at.slice(0, -1), remote], `${remote} is for a policy with a url; remove it`);
  if (found === undefined)
    report.refuse(
      at,
      'the policy does not exist: its rules would be missing in silence; correct the path, or remove it',
    );
  else if (kind === undefined)
    report.refuse(
      at,
      'the policy is none of: a .yaml file of rules, a .rego file, a folder of Rego, a .tar.gz or .tgz bundle; correct the path',
    );
  else return { path: absolute, kind, ...modesOf(entry) };
  return undefined;
}

function placeServer(
  entry: WrittenPolicySettings & { readonly url: string },
  at: Path,
  context: PolicyContext,
): PolicySource | undefined {
  const { report, resolve } = context;
  const { url, verify } = entry;
  const fault = bundleFault(url);
  if (fault !== undefined) report.refuse([...at, 'url'], fault);
  if (entry.token !== undefined && !rawToken(context.raw, at).includes('${')) {
    report.refuse(
      [...at, 'token'],
      'the token stands in the file in clear: whoever reads the file has it; write ${env:NAME}',
    );
  }
  const keys = verify?.keys.map(resolve);
  keys?.forEach((key, index) => {
    if (kindOf(context.at(key)) !== 'file')
      report.refuse([...at, 'verify', 'keys', index], 'there is no such file of a public key; correct the path');
  });
  const server: BundleServer = {
    url,
    pollMs: pollMs(entry.poll),
    ...(entry.token === undefined ? {} : { token: entry.token }),
    ...(keys === undefined ? {} : { keys }),
    ...(verify?.scope === undefined ? {} : { scope: verify.scope }),
  };
  return fault === undefined ? { path: url, kind: 'bundle', server, ...modesOf(entry) } : undefined;
}

/** What comes over plain http could be written by whoever is on the way; without a key even its origin would be unknown. */
function bundleFault(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) return 'the url is no address; write for example https://policies.example.org/bundle.tar.gz';
  if (url.username !== '' || url.password !== '') return 'the url holds a user or password; write token: ${env:NAME}';
  if (url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname))) return urlFault(text);
  return 'a policy that comes over a network comes by https, or anybody on the way could write it; use https';
}

function modesOf({ mode = 'enforce', modes }: WrittenPolicySettings): ModeSettings {
  return {
    mode: MODE_NAMES[mode],
    ...(modes === undefined ? {} : { modes: modes.map((entry) => ({ ...entry, mode: MODE_NAMES[entry.mode] })) }),
  };
}

function pollMs(written: string | undefined): number {
  const [, count, unit] = /^(\d+)([smh])$/.exec(written ?? '') ?? [];
  return count === undefined ? POLL_MS : Number(count) * (UNITS[unit ?? ''] ?? 1000);
}

function rawToken(raw: unknown, at: Path): string {
  const entry = (raw as { policies?: readonly { token?: unknown }[] } | null)?.policies?.[Number(at[1])];
  return typeof entry?.token === 'string' ? entry.token : '';
}

/** What a file or folder is as a source of policy, by its name; undefined for what is none. */
export function policyKind(name: string, found: 'file' | 'folder' | undefined): PolicySource['kind'] | undefined {
  if (found === 'folder') return 'rego';
  if (/\.ya?ml$/.test(name)) return 'yaml';
  if (/\.rego$/.test(name)) return 'rego';
  return /\.(tar\.gz|tgz)$/.test(name) ? 'bundle' : undefined;
}
