/** Reads the sections of tollgate.yaml that have few rules of their own, and fills in their defaults. */
import os from 'node:os';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import { wordInside } from '../../secrets/secret-program-place.ts';
import type { AuditConfig, Config, ExportConfig, ListenConfig, SecretSource } from '../config.ts';
import { type ProblemReport, quote } from '../config-problems.ts';
import { isExposed } from '../reading/control-files.ts';
import { realPath } from '../reading/text-files.ts';
import { DEFAULTS, type WrittenConfig, type WrittenSecret } from '../written-config.ts';
import { buildJwt } from './jwt-settings.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the milliseconds of a duration such as `12h`, whose form the schema has checked. */
export function durationMs(written: string): number {
  return Number.parseInt(written, 10) * (UNITS[written.slice(-1)] ?? 0);
}

/** Returns the sections that need no check but that of the schema. */
export function buildSections(
  written: WrittenConfig,
): Pick<Config, 'caps' | 'approvals' | 'runs' | 'knowledge' | 'labels'> {
  return {
    caps: { ...DEFAULTS.caps, ...written.caps },
    approvals: { ...DEFAULTS.approvals, ...written.approvals },
    runs: { keepMs: durationMs(written.runs?.keep ?? DEFAULTS.runs.keep) },
    knowledge: { ...DEFAULTS.knowledge, ...written.knowledge },
    labels: { sticky: written.labels?.sticky ?? [] },
  };
}

/** Returns the settings of the log. `folder`: absolute; `resolve` makes a path absolute. */
export function buildAudit(
  written: WrittenConfig['audit'],
  { folder, resolve }: { readonly folder: string; readonly resolve: (text: string) => string },
): Omit<AuditConfig, 'signing' | 'export'> {
  const { keep, recordings, signing: _signing, export: _export, ...settings } = written ?? {};
  const { keep: recordingsKeep, maxBytes } = { ...DEFAULTS.audit.recordings, ...recordings };
  return {
    rotateBytes: DEFAULTS.audit.rotateBytes,
    facts: DEFAULTS.audit.facts,
    ...settings,
    folder,
    recordings: { keepMs: durationMs(recordingsKeep), maxBytes },
    ...(keep !== undefined && {
      keep: {
        archive: resolve(keep.archive),
        ...(keep.age !== undefined && { ageMs: durationMs(keep.age) }),
        ...(keep.size !== undefined && { bytes: keep.size }),
      },
    }),
  };
}

/** Characters of the name of a replica. */
const MAX_REPLICA = 63;

/**
 * Returns the name of a replica that has none in its configuration: the host name, which in Kubernetes is the name of
 * the pod. Its characters need no escape in JSON, in a line of a checkpoint and in a key of the state.
 */
export function hostReplica(): string {
  const name = os.hostname().replaceAll(/[^A-Za-z0-9._-]/g, '-');
  return name.replace(/^[^A-Za-z0-9]+/, '').slice(0, MAX_REPLICA) || 'replica';
}

/** The folders that contain records: the log and its archive. No agent may write there. */
export function auditFolders({ folder, keep }: AuditConfig): readonly string[] {
  return keep === undefined ? [folder] : [folder, keep.archive];
}

/** Returns where the owner is told, and reports an address that others could read or answer for. */
export function buildNotices(written: WrittenConfig['notices'], report: ProblemReport): Config['notices'] {
  const { desktop = DEFAULTS.notices.desktop, webhook } = written ?? {};
  if (webhook !== undefined && !isConfidential(webhook))
    report.refuse(
      ['notices', 'webhook'],
      'it is not an https address that every program reads alike, so others could read the notices; write https://…',
    );
  return { desktop, ...(webhook !== undefined && { webhook }) };
}

/** Returns the settings of the listener, and reports those that contradict each other. */
export function buildListen(written: WrittenConfig['listen'], report: ProblemReport): ListenConfig {
  const { jwt: writtenJwt, ...settings } = written ?? {};
  const listen = { ...DEFAULTS.listen, hosts: [], origins: [], ...settings };
  const jwt = buildJwt(writtenJwt, report);
  const { maxSessions, maxSessionsPerPrincipal } = listen;
  if (maxSessionsPerPrincipal > maxSessions && written?.maxSessionsPerPrincipal !== undefined)
    report.refuse(
      ['listen', 'maxSessionsPerPrincipal'],
      `it is ${maxSessionsPerPrincipal}, more than the ${maxSessions} sessions of all principals ` +
        '(listen.maxSessions), so it would limit no one; write a smaller number, or remove it',
    );
  if (listen.headersMs > listen.requestMs)
    report.refuse(
      ['listen', written?.headersMs === undefined ? 'requestMs' : 'headersMs'],
      `headers may take ${listen.headersMs} ms and the whole request ${listen.requestMs} ms, so the request ` +
        'would end before its headers; write a smaller headersMs, or a larger requestMs',
    );
  const loopback = /^(127(\.\d{1,3}){3}|::1|\[::1\]|localhost)$/.test(listen.host);
  if (listen.auth === 'none' && !loopback)
    report.refuse(
      ['listen', 'auth'],
      'auth none on an address that others can reach: anyone there could call every tool; write auth: token, ' +
        'or host: 127.0.0.1',
    );
  return {
    ...listen,
    maxSessionsPerPrincipal: Math.min(maxSessions, maxSessionsPerPrincipal),
    ...(jwt !== undefined && { jwt }),
  };
}

/** Returns the addresses of registries, and reports those that are not an https address without a query. */
export function checkRegistries(written: WrittenConfig['registries'], report: ProblemReport): readonly string[] {
  (written ?? []).forEach((address, index) => {
    if (isConfidential(address) && !/[?#]/.test(address)) return;
    report.refuse(
      ['registries', index],
      'it is not an https address (http only for this machine) without user, query and fragment, so the answer could ' +
        'be changed on its way; write for example https://registry.modelcontextprotocol.io',
    );
  });
  return written ?? [];
}

/**
 * Returns where the audit log is copied to, and reports a target that cannot be used. `hidden`: folders in which agents
 * write, or that the log itself uses.
 */
export function buildExport(
  written: NonNullable<WrittenConfig['audit']>['export'],
  {
    report,
    resolve,
    hidden,
  }: {
    readonly report: ProblemReport;
    readonly resolve: (file: string) => string;
    readonly hidden: readonly string[];
  },
): ExportConfig | undefined {
  if (written === undefined) return undefined;
  const { to, headers = {}, batch = DEFAULTS.audit.export.batch } = written;
  const at = ['audit', 'export', 'to'];
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(to)) {
    if (!(URL.canParse(to) && isConfidential(to)))
      report.refuse(
        at,
        'it is not an https address (http only for this machine) without user, so the log could be read on its way; ' +
          'write for example https://siem.example.com/ingest, or the path of a file',
      );
    return { url: to, headers, batch };
  }
  const file = realPath(resolve(to));
  if (hidden.some((folder) => isPathWithin(file, folder)))
    report.refuse(
      at,
      'it is in the workspace, where agents write, or in the folder of the log itself; name a file elsewhere',
    );
  if (Object.keys(headers).length > 0)
    report.refuse(['audit', 'export', 'headers'], 'a file gets no headers; remove them, or write an address in `to`');
  return { file, headers, batch };
}

/** Returns the sources by name of the secret. `workspace`: the folder in which agents write. */
export function buildSecretSources(
  written: Readonly<Record<string, WrittenSecret>>,
  {
    report,
    resolve,
    workspace,
  }: {
    readonly report: ProblemReport;
    readonly resolve: (file: string) => string;
    readonly workspace?: string | undefined;
  },
): ReadonlyMap<string, SecretSource> {
  const sources = new Map<string, SecretSource>();
  for (const [name, { env, file, exec, keychain = '' }] of Object.entries(written)) {
    const [program = ''] = exec ?? [];
    // A relative path would name another program when Tollgate starts in another folder.
    if (program.includes('/') && !program.startsWith('/'))
      report.refuse(
        ['secrets', name, 'exec', 0],
        `secret ${quote(name)}: a relative path leads to another program in another folder; write an absolute ` +
          'path, or a name on the PATH',
      );
    const inside = exec === undefined || workspace === undefined ? -1 : wordInside(exec, workspace);
    if (inside !== -1)
      report.refuse(
        ['secrets', name, 'exec', inside],
        `secret ${quote(name)}: this leads into the workspace, where agents write, and runs outside of every ` +
          'sandbox; move it elsewhere',
      );
    const found = file === undefined ? undefined : resolve(file);
    if (found !== undefined && workspace !== undefined && isExposed(found, [workspace]))
      report.refuse(
        ['secrets', name, 'file'],
        `secret ${quote(name)}: this file is in the workspace, where agents read and write; move it elsewhere`,
      );
    const slash = keychain.indexOf('/');
    if (found !== undefined) sources.set(name, { from: 'file', file: found });
    else if (env !== undefined) sources.set(name, { from: 'env', variable: env });
    else if (exec !== undefined) sources.set(name, { from: 'exec', command: exec });
    else sources.set(name, { from: 'keychain', service: keychain.slice(0, slash), account: keychain.slice(slash + 1) });
  }
  return sources;
}
