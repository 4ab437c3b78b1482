/**
 * Verifies the catalog of known servers: installs each one, probes it in a sandbox as `connect` does, and writes the
 * result into the catalog.
 */
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type KnownServer, loadAllKnown } from '../../catalogs/servers/known-server.ts';
import { openConsentProbe } from '../../facade/app.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { draftKnown } from '../../facade/cli/connect/connection-draft.ts';
import { carryOut } from '../../facade/cli/connect/connection-steps.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { type ConsentProbe, probeForConsent } from '../../facade/consent/servers/consent-probe.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { giveAway } from '../servers/system.ts';

const ROOT = path.join(import.meta.dirname, '..', '..').replace(/\/dist$/, '');
const TIMEOUT_MS = 90_000;

/** The result for one server. `why`: one line, if something failed. */
export interface Finding {
  readonly name: string;
  readonly installs: boolean;
  readonly tools?: number;
  readonly why?: string;
}

/** Installs one server into a new folder, and lists its tools without network and secrets. Never throws. */
export async function verify(known: KnownServer, say: (line: string) => void): Promise<Finding> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-verify-')));
  const { name } = known;
  let installs = false;
  try {
    const place = makePlace(root);
    const choices = new Map(
      (known.choices ?? []).map((choice) => [choice.name, choice.default ?? choice.example ?? '']),
    );
    const draft = draftKnown(known, { name, profile: 'default', choices, given: new Set() });
    await carryOut(draft, new Map(), {
      ...place.places,
      vault: openPlaces({ state: place.places.state, env: {} }).vault,
      install: { env: process.env, say, containerClient: APP_MODULE.containerClient },
      reload: () => undefined,
    });
    installs = true;
    const config = loadConfig(place.file, { env: {}, home: root });
    const server = config.servers.get(name);
    if (server === undefined) throw new Error('it is not in the configuration');
    const state = openState(config.state);
    const audit = openAudit(config.audit);
    try {
      const probe: ConsentProbe = await openConsentProbe(config, { redactor: new Redactor(), audit, state });
      const { tools } = await probeForConsent(
        { ...server, connectTimeoutMs: 60_000 },
        {},
        { probe, signal: AbortSignal.timeout(TIMEOUT_MS) },
      );
      return { name, installs, tools: tools.length };
    } finally {
      await audit.close();
      await state.close();
    }
  } catch (thrown) {
    return { name, installs, why: (thrown as Error).message };
  } finally {
    rmSync(root, { recursive: true, force: true, maxRetries: 5 });
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

/** Writes the result into the file of a server. */
function note({ name, tools }: Finding, date: string): void {
  const file = path.join(ROOT, 'catalogs', 'servers', `${name}.yaml`);
  const lists = tools === undefined ? 'false' : `true, tools: ${tools}`;
  const line = `verified: {date: ${date}, installs: true, lists: ${lists}}`;
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^verified: .*$/m, line));
}

if (process.argv[1]?.endsWith('verify/servers.js') === true) {
  const wanted = process.argv.slice(2);
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const all = loadAllKnown().filter(
    (known) => known.package !== undefined && (wanted.length === 0 || wanted.includes(known.name)),
  );
  for (const known of all) {
    const began = Date.now();
    const found = await verify(known, say);
    say(
      [
        found.name.padEnd(16),
        found.installs ? 'installs ' : 'DOES NOT INSTALL ',
        found.tools === undefined ? `lists nothing: ${found.why ?? ''} ` : `lists ${found.tools} `,
        `${Math.round((Date.now() - began) / 1000)} s`,
      ].join(' '),
    );
    if (found.installs) note(found, new Date().toISOString().slice(0, 10));
    else process.exitCode = 1;
  }
}
