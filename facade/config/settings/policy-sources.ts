/** Reads the sources under `policies`: files, folders and bundles that are fetched. Refuses unsafe addresses. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { urlFault } from '../../../catalogs/readers/urls.ts';
import { type BundleServer, MODE_NAMES, type ModeSettings } from '../../../policies/port.ts';
import type { PolicySource } from '../config.ts';
import { fileProblem, type Path, type Problem, type ProblemReport } from '../config-problems.ts';
import { kindOf } from '../work-folders.ts';
import type { WrittenConfig, WrittenPolicySettings } from '../written-config.ts';
import { durationMs } from './sections.ts';

/** Default of `poll`; the schema has the same one. */
const POLL = '60s';
const LOOPBACK = /^(127(\.\d{1,3}){3}|\[::1\]|localhost)$/;

/** What placing needs. `raw`: the file before variables were filled in, to find literal tokens. */
export interface PolicyContext {
  readonly raw: unknown;
  readonly resolve: (written: string) => string;
  readonly report: ProblemReport;
  /** Where a file is read (see World in work-folders.ts). */
  readonly at: (file: string) => string;
}

/** Returns the policies with absolute paths, their kinds and modes, and reports every error. */
export function placePolicies(written: WrittenConfig['policies'], context: PolicyContext): readonly PolicySource[] {
  const sources: PolicySource[] = [];
  (written ?? []).forEach((entry, index) => {
    const source =
      typeof entry === 'string'
        ? placeFile({ path: entry }, ['policies', index], context)
        : placeEntry(entry, ['policies', index], context);
    if (source === undefined) return;
    const isDuplicate = sources.some((other) => other.path === source.path);
    if (isDuplicate)
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

/**
 * Returns a warning for each Rego file next to a policy file that `policies` does not name, because its author may
 * believe that its rules apply. Messages show paths relative to `folder`.
 */
export function ignoredRego(folder: string, sources: readonly PolicySource[]): readonly Problem[] {
  const places = new Set(
    sources
      .filter(({ path: file, server }) => server === undefined && kindOf(file) === 'file')
      .map(({ path: file }) => path.dirname(file)),
  );
  const files = [...places].flatMap((placeEntry) =>
    namesIn(placeEntry)
      .filter((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'))
      .map((name) => path.join(placeEntry, name)),
  );
  const ignored = files.filter(
    (file) => !sources.some((source) => file === source.path || file.startsWith(`${source.path}/`)),
  );
  return ignored
    .sort()
    .map((file) =>
      fileProblem(
        path.relative(folder, file),
        'the file is next to a policy, but is not read, because policies does not name it; add it there, or move it',
      ),
    );
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // The folder cannot be listed. Its files can still be named one by one.
    return [];
  }
}

/** Returns the files that decide what a source allows: the policy, or the keys that verify a fetched bundle. */
export function controlFilesOf({ path: file, server }: PolicySource): readonly string[] {
  return server === undefined ? [file] : (server.keys ?? []);
}

function placeEntry(entry: WrittenPolicySettings, at: Path, context: PolicyContext): PolicySource | undefined {
  const { path: file, url } = entry;
  if ((file === undefined) === (url === undefined)) {
    context.report.refuse(at, 'a policy needs either path or url; write one of them');
    return undefined;
  }
  entry.modes?.forEach(({ profile, origin }, index) => {
    if (profile === undefined && origin === undefined)
      context.report.refuse(
        [...at, 'modes', index],
        'the mode applies to every caller; add profile or origin, or write it as the mode of the policy',
      );
  });
  return url === undefined
    ? placeFile({ ...entry, path: file ?? '' }, [...at, 'path'], context)
    : placeBundle({ ...entry, url }, at, context);
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
    report.refuse(at, 'the policy does not exist, so its rules would be missing; correct the path, or remove it');
  else if (kind === undefined)
    report.refuse(
      at,
      'the policy is of no known kind; write a .yaml file, a .rego file or folder, or a .tar.gz or .tgz bundle',
    );
  else return { path: absolute, kind, ...modesOf(entry) };
  return undefined;
}

function placeBundle(
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
      'the token is in the file in clear: anyone who reads the file has it; write ${env:NAME}',
    );
  }
  const keys = verify?.keys.map(resolve);
  keys?.forEach((key, index) => {
    if (kindOf(context.at(key)) !== 'file')
      report.refuse([...at, 'verify', 'keys', index], 'the file of the public key does not exist; correct the path');
  });
  const server: BundleServer = {
    url,
    pollMs: durationMs(entry.poll ?? POLL),
    ...(entry.token === undefined ? {} : { token: entry.token }),
    ...(keys === undefined ? {} : { keys }),
    ...(verify?.scope === undefined ? {} : { scope: verify.scope }),
  };
  return fault === undefined ? { path: url, kind: 'bundle', server, ...modesOf(entry) } : undefined;
}

/** Returns why a bundle must not be fetched from an address: over plain http, anyone on the way could change it. */
function bundleFault(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined)
    return 'the url is not an address; write for example https://policies.example.org/bundle.tar.gz';
  if (url.username !== '' || url.password !== '')
    return 'the url contains a user or password; write token: ${env:NAME}';
  if (url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname))) return urlFault(text);
  return 'a policy that comes over a network could be changed on the way; use https';
}

function modesOf({ mode = 'enforce', modes }: WrittenPolicySettings): ModeSettings {
  return {
    mode: MODE_NAMES[mode],
    ...(modes === undefined ? {} : { modes: modes.map((entry) => ({ ...entry, mode: MODE_NAMES[entry.mode] })) }),
  };
}

function rawToken(raw: unknown, at: Path): string {
  const entry = (raw as { policies?: readonly { token?: unknown }[] } | null)?.policies?.[Number(at[1])];
  return typeof entry?.token === 'string' ? entry.token : '';
}

/** Returns the kind of policy that a path holds, by its name; undefined if it holds none. */
export function policyKind(name: string, found: 'file' | 'folder' | undefined): PolicySource['kind'] | undefined {
  if (found === 'folder') return 'rego';
  if (/\.ya?ml$/.test(name)) return 'yaml';
  if (/\.rego$/.test(name)) return 'rego';
  return /\.(tar\.gz|tgz)$/.test(name) ? 'bundle' : undefined;
}
