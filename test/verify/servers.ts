/**
 * Verifies the catalog of known servers: installs each one, probes it in a sandbox without a network as `connect` does,
 * and writes the result into its file at once, so that a run that was stopped goes on where it ended.
 */
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  isNodeTooOld,
  type KnownServer,
  loadAllKnown,
  loadKnown,
  type VerifiedInstall,
} from '../../catalogs/servers/known-server.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { openConsentProbe } from '../../facade/app.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { draftKnown } from '../../facade/cli/connect/connection-draft.ts';
import { carryOut } from '../../facade/cli/connect/connection-steps.ts';
import type { Config } from '../../facade/config/config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { type ConsentProbe, probeForConsent } from '../../facade/consent/servers/consent-probe.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { giveAway } from '../servers/system.ts';

const ROOT = path.join(import.meta.dirname, '..', '..').replace(/\/dist$/, '');
const TIMEOUT_MS = 90_000;
/** The most columns of a line in a file of the catalog. */
const WIDTH = 118;

/** The result for one server. `why`: one line for each failed attempt. */
export interface Finding {
  readonly name: string;
  readonly installs: boolean;
  readonly needs?: VerifiedInstall['needs'];
  /** Sorted by name. */
  readonly tools?: readonly RawTool[];
  readonly why?: string;
}

/**
 * Installs one server into a new folder, and lists its tools without a network: first with placeholders for its
 * credentials, then with the examples of the catalog, which have the right form and no rights. Never throws.
 */
export async function verify(known: KnownServer, say: (line: string) => void): Promise<Finding> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-verify-')));
  const { name, package: pkg, credentials = [] } = known;
  let installs = false;
  const faults: string[] = [];
  try {
    const config = await install(known, { root, say });
    installs = true;
    for (const needs of [undefined, ...(credentials.length > 0 ? (['credentials'] as const) : [])]) {
      const tools = await list(config, { name, withSecrets: needs !== undefined }).catch((thrown: Error) => {
        faults.push(thrown.message);
      });
      if (tools !== undefined) return { name, installs, ...(needs !== undefined && { needs }), tools };
    }
    return { name, installs, needs: isNodeTooOld(pkg?.node) ? 'node' : 'network', why: faults.join(' ') };
  } catch (thrown) {
    return { name, installs, why: (thrown as Error).message };
  } finally {
    rmSync(root, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function install(
  known: KnownServer,
  { root, say }: { readonly root: string; readonly say: (line: string) => void },
): Promise<Config> {
  const { name } = known;
  const { file, places } = makePlace(root);
  const choices = new Map(
    (known.choices ?? []).map((choice) => [
      choice.name,
      choice.default ?? (choice.kind === 'folder' ? path.join(places.folder, 'work') : (choice.example ?? '')),
    ]),
  );
  const draft = draftKnown(known, { name, profile: 'default', choices, given: new Set() });
  await carryOut(draft, new Map(draft.secrets.map((secret) => [secret.name, secret.example])), {
    ...places,
    vault: openPlaces({ state: places.state, env: {} }).vault,
    install: { env: process.env, say, containerClient: APP_MODULE.containerClient },
    reload: () => undefined,
  });
  return loadConfig(file, { env: {}, home: root });
}

async function list(
  config: Config,
  { name, withSecrets }: { readonly name: string; readonly withSecrets: boolean },
): Promise<readonly RawTool[]> {
  const server = config.servers.get(name);
  if (server === undefined) throw new Error('it is not in the configuration');
  const state = openState(config.state);
  const audit = openAudit(config.audit);
  try {
    const probe: ConsentProbe = await openConsentProbe(config, { redactor: new Redactor(), audit, state });
    const { tools } = await probeForConsent(
      { ...server, connectTimeoutMs: 60_000 },
      { withSecrets },
      { probe, signal: AbortSignal.timeout(TIMEOUT_MS) },
    );
    return [...tools].sort((a, b) => (a.name < b.name ? -1 : 1));
  } finally {
    await audit.close();
    await state.close();
  }
}

function makePlace(root: string): {
  readonly file: string;
  readonly places: { readonly state: string; readonly folder: string };
} {
  const folder = path.join(root, 'project');
  mkdirSync(path.join(folder, 'work'), { recursive: true });
  giveAway(path.join(folder, 'work'));
  const file = path.join(folder, 'tollgate.yaml');
  writeFileSync(file, 'version: 1\nworkspace: work\nstate: ../state\n');
  return { file, places: { state: path.join(root, 'state'), folder } };
}

/** Returns the file of a server with the result in place of the former one. Its other lines stay as they are. */
export function withResult(text: string, { needs, tools }: Finding, date: string): string {
  const rest = text.replace(/^verified:.*\n(?:[ \]].*\n)*/m, '');
  const need = needs === undefined ? '' : `  needs: ${needs}\n`;
  return `${rest}verified:\n  date: ${date}\n  installs: true\n${need}${tools === undefined ? '' : toolLines(tools)}`;
}

function toolLines(tools: readonly RawTool[]): string {
  const lines = ['  tools: ['];
  tools.forEach(({ name }, index) => {
    const word = `${/^[A-Za-z][\w.-]*$/.test(name) ? name : JSON.stringify(name)}${index + 1 < tools.length ? ',' : ']'}`;
    const last = lines.at(-1) ?? '';
    if (last.length + 1 + word.length > WIDTH) lines.push(`    ${word}`);
    else lines[lines.length - 1] = last.endsWith('[') ? last + word : `${last} ${word}`;
  });
  return `${lines.join('\n')}\n`;
}

/** Returns the programs to verify: those that are named, or all that were not verified on this day. */
export function toVerify(catalog: readonly KnownServer[], names: readonly string[], date: string): KnownServer[] {
  return catalog.filter(
    ({ name, package: pkg, verified }) =>
      pkg !== undefined && (names.length > 0 ? names.includes(name) : verified?.date !== date),
  );
}

async function run(names: readonly string[]): Promise<void> {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const date = new Date().toISOString().slice(0, 10);
  // Reports a name that is not in the catalog.
  for (const name of names) loadKnown(name);
  for (const known of toVerify(loadAllKnown(), names, date)) {
    const began = Date.now();
    // The dependencies of the package become those of today.
    const found = await verify({ ...known, verified: { date, installs: true } }, say);
    const file = path.join(ROOT, 'catalogs', 'servers', `${known.name}.yaml`);
    if (found.installs) writeFileSync(file, withResult(readFileSync(file, 'utf8'), found, date));
    else process.exitCode = 1;
    say(
      [
        found.name.padEnd(20),
        found.installs ? '' : 'DOES NOT INSTALL ',
        found.tools === undefined ? 'lists nothing' : `lists ${found.tools.length}`,
        found.needs === undefined ? '' : `, needs ${found.needs}`,
        found.why === undefined ? '' : `: ${found.why}`,
        `, ${Math.round((Date.now() - began) / 1000)} s`,
      ].join(''),
    );
  }
}

if (process.argv[1]?.endsWith('verify/servers.js') === true) await run(process.argv.slice(2));
