/** Runs the commands that prove the log: `tollgate audit` verify, prove, checkpoint and key. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import { openAudit } from '../../audit/audit-log.ts';
import { verifyAudit } from '../../audit/chain-verification.ts';
import { originOf, verifyFleet } from '../../audit/fleet/fleet-verification.ts';
import { type FoundHeads, parseHeads, readHeads } from '../../audit/fleet/published-heads.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import { AuditTree } from '../../audit/proof/audit-tree.ts';
import { proveRecords } from '../../audit/proof/inclusion-proof.ts';
import { sealLog } from '../../audit/proof/log-sealing.ts';
import type { ProofEvidence } from '../../audit/proof/proof-verification.ts';
import { parseVerifierKey, type VerifierKey, verifierKey } from '../../audit/proof/signed-note.ts';
import { findSigningKey, isKeyInState, signingKey } from '../../audit/proof/signing-key.ts';
import { beginTree } from '../../audit/proof/tree-beginning.ts';
import type { Config } from '../../config/config.ts';
import { Redactor } from '../../output/redactor.ts';
import { openSecrets } from '../../secrets/secrets.ts';
import { readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { openPlacesFor } from '../configuration/secret-actions.ts';
import { writeAsked } from '../output-file.ts';
import { json, plural, printable } from '../print.ts';
import { existingFolder, type LogOptions, type LogPlaces, logPlacesOf, oneLog, usage } from './audit-command.ts';
import { faultAdvice, verdictText } from './audit-view.ts';
import { fleetText, fleetWarnings } from './fleet-view.ts';
import { proofText, proofWarnings } from './proof-view.ts';

/** Options of `verify`. */
export interface VerifyCommandOptions extends LogOptions {
  readonly all?: true;
  readonly seal?: true;
  readonly expectHead?: readonly string[];
  readonly archive?: readonly string[];
  readonly key?: string;
  readonly publicKey?: readonly string[];
  /** True: those of the shared state. Otherwise a file. */
  readonly heads?: true | string;
  readonly replica?: string;
  readonly checkpoint?: readonly string[];
}

/** How long a command takes records in, ms. */
const SEAL_MS = 600_000;

/**
 * Verifies the log. Exit code 3 if it was changed, 8 if it is unchanged as far as can be seen and not all of it is
 * proven. Throws USAGE, CONFIG_INVALID, STATE_FAILED, AUDIT_FAILED.
 */
export async function runAuditVerify(options: VerifyCommandOptions, io: Io): Promise<number> {
  const archives = (options.archive ?? []).map((folder) => existingFolder(resolve(io.cwd, folder)));
  const places = logPlacesOf(options, io);
  if (options.seal === true) await sealNow(places, io);
  if (places.folders.length > 1 || options.heads !== undefined) return verifyReplicas(options, places, io);
  const evidence = await evidenceOf(options, places, io);
  const digest = digestOf(options.key, io, places);
  const verdict = verifyAudit(places.folder, options.expectHead ?? [], {
    archives,
    proof: evidence,
    ...(digest !== undefined && { digest }),
  });
  const warnings = verdict.ok ? proofWarnings(verdict, { isKeyWithLog: isKeyWithLog(options, places), options }) : [];
  if (options.json === true) io.stdout(json({ ...verdict, warnings }));
  else {
    io.stdout(verdictText(io, { verdict, isWhole: options.all === true }) + proofText(io, verdict));
    io.stderr(verdict.ok ? warnings.map((line) => `${line}\n`).join('') : faultAdvice(verdict, places.folder));
  }
  if (!verdict.ok) return EXIT.refused;
  return verdict.proof.complete ? EXIT.ok : EXIT.unproven;
}

/** Verifies the logs of several replicas, as `runAuditVerify`. */
async function verifyReplicas(options: VerifyCommandOptions, places: LogPlaces, io: Io): Promise<number> {
  if ((options.archive ?? []).length > 0)
    throw usage('A log is verified with its archives alone; name its folder, without --heads');
  const { heads, faults } = await headsOf(options, io);
  const isMeant = ({ replica }: { readonly replica: string }): boolean => replica === (options.replica ?? replica);
  const { publicKey: _, ...proof } = await evidenceOf(options, places, io);
  const verdict = verifyFleet(places.folders, {
    heads: { heads: heads.filter(isMeant), faults: faults.filter(isMeant) },
    publicKeys: (options.publicKey ?? []).map((given) => readVerifierKey(given, io)),
    proof,
    digest: digestOf(options.key, io, places),
    expectHeads: options.expectHead ?? [],
  });
  const warnings = verdict.ok ? fleetWarnings(verdict, options) : [];
  if (options.json === true) io.stdout(json({ ...verdict, warnings }));
  else {
    io.stdout(fleetText(io, verdict));
    io.stderr(warnings.map((line) => `${line}\n`).join(''));
  }
  if (!verdict.ok) return EXIT.refused;
  return verdict.complete ? EXIT.ok : EXIT.unproven;
}

/** Returns the heads that the logs are compared with; none without the option. */
async function headsOf({ heads, config }: VerifyCommandOptions, io: Io): Promise<FoundHeads> {
  if (heads === undefined) return { heads: [], faults: [] };
  if (heads !== true) return parseHeads(readText(heads, io));
  return withState(readForOwner({ config }, io), readHeads);
}

/**
 * Writes the proof of a call. Exit code 1 if there is no such record, 8 if a record is not signed yet. Throws USAGE,
 * CONFIG_INVALID, STATE_FAILED, AUDIT_FAILED.
 */
export async function runAuditProve(
  options: LogOptions & { readonly id: string; readonly out?: string; readonly seal?: true },
  io: Io,
): Promise<number> {
  const places = oneLog(logPlacesOf(options, io));
  if (options.seal === true) await sealNow(places, io);
  const reader = openAuditReader(places.folder, places.index);
  const found = ((): ReturnType<typeof reader.find> => {
    try {
      return reader.find(options.id);
    } finally {
      reader.close();
    }
  })();
  if (found.length === 0) {
    io.stderr(`There is no record with the id ${printable(options.id)}.\n`);
    return EXIT.unexpected;
  }
  const key = await logKey(places, io);
  const proof = proveRecords(places.folder, found, { withLines: true, ...(key !== undefined && { key }) });
  const content = json(proof);
  const { out } = options;
  if (out === undefined) io.stdout(content);
  else writeAsked({ file: resolve(io.cwd, out), shown: out, content, isBeside: true });
  const open = proof.records.filter((record) => record === null).length;
  if (open > 0)
    io.stderr(
      `${plural(open, 'record')} of ${found.length} not proven: not signed yet, or changed. Sign with --seal, or see ` +
        'tollgate audit verify\n',
    );
  else if (out !== undefined)
    io.stderr(`${plural(found.length, 'record')} proven. Check it: python3 verify-audit.py ${printable(out)}\n`);
  return open > 0 ? EXIT.unproven : EXIT.ok;
}

/**
 * Prints the last checkpoint, with its cosignature. Exit code 8 if there is none. Throws USAGE, CONFIG_INVALID,
 * STATE_FAILED, AUDIT_FAILED.
 */
export async function runAuditCheckpoint(options: LogOptions & { readonly seal?: true }, io: Io): Promise<number> {
  const places = oneLog(logPlacesOf(options, io));
  if (options.seal === true) await sealNow(places, io);
  const tree = AuditTree.open(places.folder);
  const last = tree?.last;
  tree?.close();
  if (last === undefined) {
    io.stderr('Nothing is signed yet. Sign with --seal, or start Tollgate.\n');
    return EXIT.unproven;
  }
  const note = last.cosignature === '' ? last.note : `${last.note}${last.cosignature}\n`;
  io.stdout(options.json === true ? json({ size: last.size, at: last.at, note }) : note);
  return EXIT.ok;
}

/**
 * Prints the verifier key of the log, and makes log and key ready if nothing was signed yet. Throws CONFIG_INVALID,
 * STATE_FAILED, AUDIT_FAILED.
 */
export async function runAuditKey(options: Pick<LogOptions, 'config' | 'json'>, io: Io): Promise<number> {
  const config = requireConfig(logPlacesOf(options, io));
  const { folder } = config.audit;
  await recordBeginning(config);
  const key = await signingKey(keyPlaces(config, io));
  const tree = AuditTree.open(folder);
  const text = verifierKey(tree?.origin ?? '', createPublicKey(key)).text;
  tree?.close();
  io.stdout(options.json === true ? json({ key: text }) : `${text}\n`);
  if (isKeyInState({ state: config.state, signing: config.audit.signing }, folder)) io.stderr(`${KEY_IN_STATE}\n`);
  return EXIT.ok;
}

const KEY_IN_STATE =
  'The private key is in the state folder: it proves nothing against someone who can read this folder.';

/** Signs what is not signed yet. Throws USAGE for a copy of the log, STATE_FAILED, AUDIT_FAILED. */
export async function sealNow(places: LogPlaces, io: Io): Promise<void> {
  const config = requireConfig(places);
  const key = await signingKey(keyPlaces(config, io));
  await recordBeginning(config);
  const { folder, replica } = config.audit;
  const { withheld, busy, more } = sealLog({ folder, key, budgetMs: SEAL_MS, now: Date.now(), replica });
  if (busy === true) io.stderr('Another process signs the log at this moment. Run the command again.\n');
  else if (more === true) io.stderr('Not all records are signed yet. Run the command again.\n');
  for (const { file, what } of withheld) io.stderr(`${printable(file)}: ${what}; its new records are not signed\n`);
}

/** Begins the tree if there is none. Only then is anything recorded. */
async function recordBeginning({ audit }: Config): Promise<void> {
  const existing = AuditTree.open(audit.folder);
  existing?.close();
  if (existing !== undefined) return;
  const log = openAudit(audit);
  try {
    beginTree(audit.folder, (entry) => log.append(entry));
  } finally {
    await log.close();
  }
}

/** Returns the configuration. Throws USAGE for a copy of the log. */
export function requireConfig({ config }: LogPlaces): Config {
  if (config !== undefined) return config;
  throw new TollgateError('USAGE', {
    detail: 'A copy of the log cannot be signed.',
    next: 'Leave --folder away, or leave --seal away.',
  });
}

function keyPlaces(config: Config, io: Io): Parameters<typeof findSigningKey>[0] {
  const secret = openSecrets(() => config, { places: openPlacesFor(config, io), redactor: new Redactor() });
  return { state: config.state, signing: config.audit.signing, secret };
}

/** The key of the log; undefined for a copy, or while there is none. */
export async function logKey({ config }: LogPlaces, io: Io): Promise<KeyObject | undefined> {
  return config === undefined ? undefined : findSigningKey(keyPlaces(config, io));
}

async function evidenceOf(
  { publicKey, checkpoint = [] }: VerifyCommandOptions,
  places: LogPlaces,
  io: Io,
): Promise<ProofEvidence> {
  const keys = (publicKey ?? []).map((one) => readVerifierKey(one, io));
  // A key of another log is a fault, so one is always used.
  const given = keys.find(({ name }) => name === originOf(places.folder)) ?? keys[0];
  const key = given === undefined ? await logKey(places, io) : undefined;
  const witness = parseVerifierKey(places.config?.audit.signing.witness?.key ?? '');
  return {
    ...(given !== undefined && { publicKey: given }),
    ...(key !== undefined && { key }),
    ...(witness !== undefined && { witness }),
    kept: new Map(checkpoint.map((file) => [file, readText(file, io)])),
  };
}

/** Reads a verifier key, or a file with one. Throws USAGE. */
export function readVerifierKey(given: string, io: Io): VerifierKey {
  const key = parseVerifierKey(given) ?? parseVerifierKey(readText(given, io));
  if (key !== undefined) return key;
  throw usage(`${printable(given)} is no verifier key (name+id+key), and no file with one`);
}

function readText(file: string, io: Io): string {
  const text = unlessUnreadable(() => readFileSync(resolve(io.cwd, file), 'utf8'));
  if (text === undefined) throw usage(`There is no file ${printable(file)}`);
  return text;
}

/** The key that verifies may be held by someone who holds the log. */
function isKeyWithLog({ publicKey }: VerifyCommandOptions, { config, folder }: LogPlaces): boolean {
  if (publicKey !== undefined || config === undefined) return false;
  return isKeyInState({ state: config.state, signing: config.audit.signing }, folder);
}

/**
 * Returns the digest that manifests of archives are made with, if the log has a key. Throws USAGE for a file that does
 * not exist.
 */
function digestOf(file: string | undefined, io: Io, { config }: LogPlaces): ((text: string) => string) | undefined {
  const given = file === undefined ? undefined : resolve(io.cwd, file);
  const path = given ?? (config === undefined ? undefined : join(config.state, 'audit.key'));
  const key = path === undefined ? undefined : findKeyFile(dirname(path), basename(path));
  if (given !== undefined && key === undefined) throw usage(`There is no file ${given}`);
  return key === undefined ? undefined : createDigest(key);
}
