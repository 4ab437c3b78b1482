/** Collects what explains the records of an incident: policy, approvals and versions. What cannot be read is named. */

import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import type { IncidentFacts, IncidentScope } from '../../audit/incident/incident-records.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import type { Config } from '../../config/config.ts';
import { type Approval, ApprovalStore } from '../../consent/approvals/call-approval.ts';
import { ConsentStore, consentStateOf } from '../../consent/servers/consent-store.ts';
import { Redactor } from '../../output/redactor.ts';
import { readReports } from '../../runtime/servers/server-reports.ts';
import { hasState } from '../../secrets/opened-state.ts';
import { openSecrets } from '../../secrets/secrets.ts';
import { VERSION } from '../../serve/version.ts';
import type { State } from '../../state/state-port.ts';
import type { Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { openPlacesFor } from '../configuration/secret-actions.ts';
import type { Wiring } from '../wiring.ts';

/** Finds secrets in texts. `unread`: the names of those that could not be read, so that they cannot be found. */
export interface KnownSecrets {
  readonly redactor: Redactor;
  readonly unread: readonly string[];
}

/** Registers every secret that the configuration or the vault has. */
export async function readKnownSecrets(config: Config, io: Io): Promise<KnownSecrets> {
  const redactor = new Redactor();
  for (const secret of config.secrets) redactor.register(secret);
  const places = openPlacesFor(config, io);
  const read = openSecrets(() => config, { places, redactor });
  const unread: string[] = [];
  const inVault = await places.vault.list().catch(() => {
    unread.push('the vault');
    return [];
  });
  const names = new Set([...config.secretSources.keys(), ...inVault.map(({ name }) => name)]);
  for (const name of names) await read(name).catch(() => void unread.push(name));
  return { redactor, unread };
}

/** What the documents are made from. */
export interface DocumentSources extends Pick<Wiring, 'check'> {
  readonly config: Config;
  readonly scope: IncidentScope;
  readonly secrets: KnownSecrets;
  readonly opa?: string;
}

/** Returns the documents by name, and what is missing in them. */
export async function incidentDocuments(
  sources: DocumentSources,
  facts: IncidentFacts,
): Promise<{ readonly documents: Readonly<Record<string, unknown>>; readonly missing: readonly string[] }> {
  const missing: string[] = [];
  const attempt = async <T>(what: string, work: () => Promise<T> | T): Promise<T | undefined> => {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      missing.push(`${what} could not be read (${thrown.code}).`);
      return undefined;
    }
  };
  const { config, opa } = sources;
  const present = await attempt('The present policy', () => sources.check(config, opa === undefined ? {} : { opa }));
  const state = !hasState(config)
    ? undefined
    : await attempt('The state', () => withState(config, (opened) => readStored(sources, facts, opened)));
  if (state === undefined) missing.push('There are no stored approvals and consents.');
  const { unread } = sources.secrets;
  if (unread.length > 0)
    missing.push(`The texts of rules, because these secrets could not be read and searched for: ${unread.join(', ')}.`);
  return {
    documents: {
      'policy.json': {
        revisions: [...facts.revisions.values()],
        rules: [...facts.rules.values()],
        present: { ...(present !== undefined && { revision: present.revision }), files: ruleFiles(sources) },
      },
      'approvals.json': state?.approvals ?? [],
      'versions.json': {
        tollgate: VERSION,
        node: process.version,
        platform: `${process.platform} ${process.arch}`,
        servers: serversOf(config, facts, state?.servers),
      },
    },
    missing,
  };
}

/** Larger files of rules are only named. Bytes. */
const MAX_RULES = 1024 * 1024;

/** The files of rules, with their texts if all secrets can be found in them. Folders and bundles are only named. */
function ruleFiles({ config, secrets }: DocumentSources): readonly unknown[] {
  const conceal = createConceal(config);
  const clean = (text: string): string => secrets.redactor.redact(conceal(text)).value;
  const named = (file: string): string =>
    isPathWithin(file, config.folder) ? path.relative(config.folder, file) : path.basename(file);
  const isHidden = secrets.unread.length > 0;
  const { file, value } = config.ruleDocument;
  // The other settings of this file are no rules.
  const own = clean(JSON.stringify(value.rules));
  const inConfig = value.rules.length === 0 ? [] : [{ file: named(file), ...(!isHidden && { rules: own }) }];
  const files = config.policies.map(({ path: source, kind, mode }) => {
    const place = config.at(source);
    const stats = kind === 'bundle' ? undefined : statSync(place, { throwIfNoEntry: false });
    const entry = { file: kind === 'bundle' ? path.basename(source) : named(source), kind, mode };
    if (isHidden || stats?.isFile() !== true || stats.size > MAX_RULES) return entry;
    const text = readFileSync(place, 'utf8');
    const shown = clean(text);
    return { ...entry, redacted: shown !== text, text: shown };
  });
  return [...inConfig, ...files];
}

interface StoredFacts {
  readonly approvals: readonly unknown[];
  readonly servers: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
}

async function readStored(
  { config, scope, secrets }: DocumentSources,
  facts: IncidentFacts,
  state: State,
): Promise<StoredFacts> {
  const conceal = createConceal(config);
  const clean = (text: string): string => secrets.redactor.redact(conceal(text)).value;
  const requests = await new ApprovalStore(state).list();
  const approvals = requests.flatMap(({ item }) => (isMeant(item, scope, facts) ? [approvalOf(item, clean)] : []));
  const key = findKeyFile(config.state, 'audit.key');
  const consents = key === undefined ? new Map() : new ConsentStore(state, createDigest(key)).all();
  const reports = await readReports(state);
  const servers = new Map<string, Readonly<Record<string, unknown>>>();
  for (const [server, stored] of consents) {
    const { consent } = stored;
    servers.set(server, {
      consent: consentStateOf(stored),
      ...(consent !== undefined && { start: consent.hash, by: consent.by, at: consent.at }),
      ...(consent?.facts.pin !== undefined && { pin: consent.facts.pin }),
      ...(consent?.tools?.set !== undefined && { tools: consent.tools.set }),
    });
  }
  for (const [server, [report]] of reports)
    servers.set(server, { ...servers.get(server), state: report?.state, version: report?.version });
  return { approvals, servers };
}

function isMeant({ id, asked, decided, session, binding }: Approval, scope: IncidentScope, facts: IncidentFacts) {
  if (facts.consents.has(id)) return true;
  const isThen = (ms: number): boolean => ms >= Date.parse(scope.since) && ms < Date.parse(scope.until);
  if (!isThen(asked) && (decided === undefined || !isThen(decided.at))) return false;
  if (scope.session !== undefined && session !== scope.session) return false;
  return scope.principal === undefined || facts.principals.has(binding.principal.id);
}

/** Never the arguments, and of the effect only what names the tool. */
function approvalOf(item: Approval, clean: (text: string) => string): unknown {
  const { id, state, scope, widest, binding, hash, reasons, session, run, call, uses, asked, expires, decided } = item;
  const { principal, effect } = binding;
  return {
    id,
    state,
    scope,
    widest,
    principal: { id: principal.id, role: principal.role },
    server: effect.server,
    tool: effect.tool,
    verb: effect.verb,
    binding: hash,
    reasons: reasons.map((reason) => ({ ...reason, message: clean(reason.message) })),
    session,
    run,
    call,
    uses,
    asked: new Date(asked).toISOString(),
    expires: new Date(expires).toISOString(),
    ...(decided !== undefined && {
      decided: {
        by: decided.by,
        at: new Date(decided.at).toISOString(),
        form: decided.form,
        ...(decided.reason !== undefined && { reason: clean(decided.reason) }),
      },
    }),
  };
}

/** The servers of the configuration, those of the records, and those with a consent. */
function serversOf(
  config: Config,
  facts: IncidentFacts,
  stored: StoredFacts['servers'] = new Map(),
): readonly unknown[] {
  const names = new Set([...config.servers.keys(), ...facts.servers, ...stored.keys()]);
  return [...names].sort().map((name) => ({
    name,
    inRecords: facts.servers.has(name),
    transport: config.servers.get(name)?.transport ?? 'not in the present configuration, or built in',
    ...stored.get(name),
  }));
}
