/**
 * OPA's signed bundles: `.signatures.json` is a JWT with the hash of every file. See
 * https://www.openpolicyagent.org/docs/latest/management-bundles/#signing.
 */
import { createHash, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { CompactSign, jwtVerify } from 'jose';

/** The file of signatures in a bundle. It is not signed itself. */
const SIGNATURES = '.signatures.json';
const HASH = 'SHA-256';
/** OPA hashes the value of these files, so white space and the order of keys do not matter. */
const VALUES = /(^|\/)(data\.json|\.manifest)$/;
/** OPA would also hash the value of these. Tollgate reads no YAML here. */
const UNREADABLE = /(^|\/)data\.ya?ml$/;

/** Signature algorithms, by OPA's names. */
export const ALGORITHMS = ['RS256', 'ES256', 'HS256'] as const;
export type SigningAlgorithm = (typeof ALGORITHMS)[number];

/** A key for signing: the PEM of a private key, or the shared secret for HS256. */
export interface SigningKey {
  readonly algorithm: SigningAlgorithm;
  readonly key: string;
  /** What the bundle may be used for. Readers check it. Absent: anything. */
  readonly scope?: string;
}

/** The keys that verify a signature. */
interface Verifier {
  /** PEM of public keys or certificates. */
  readonly keys?: readonly string[];
  /** Secrets for HMAC. */
  readonly secrets?: readonly string[];
  /** The scope that the signature must have. Absent: it must have none. */
  readonly scope?: string;
}

/** Algorithms for each kind of key. A public key must never be used as the secret of an HMAC. */
const FITTING: Readonly<Record<string, readonly string[]>> = {
  rsa: ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ec: ['ES256', 'ES384', 'ES512'],
};

interface SignedFile {
  readonly name: string;
  readonly hash: string;
  readonly algorithm: string;
}

type Files = ReadonlyMap<string, Uint8Array>;

/**
 * Returns the text of `.signatures.json` for these files. It contains no time, so RS256 and HS256 give equal texts for
 * equal files. Throws Error if the key does not fit the algorithm.
 */
export async function signFiles(files: Files, { algorithm, key, scope }: SigningKey): Promise<string> {
  const listed = [...files]
    .filter(([name]) => name !== SIGNATURES)
    .map(([name, bytes]): SignedFile => ({ name: plainName(name), hash: hashFile(name, bytes), algorithm: HASH }));
  const payload = new TextEncoder().encode(
    JSON.stringify({
      files: listed.sort((a, b) => (a.name < b.name ? -1 : 1)),
      ...(scope === undefined ? {} : { scope }),
    }),
  );
  const secret = algorithm === 'HS256' ? new TextEncoder().encode(key) : requireKind(createPrivateKey(key), algorithm);
  const token = await new CompactSign(payload).setProtectedHeader({ alg: algorithm }).sign(secret);
  return `${JSON.stringify({ signatures: [token] })}\n`;
}

/**
 * Verifies that one of the keys signed exactly these files. Throws Error with the reason: no signature, no key that
 * fits, another scope, or a file that is changed, missing or not listed.
 */
export async function verifyFiles(files: Files, verifier: Verifier): Promise<void> {
  const signed = new Map((await readSigned(files, verifier)).map((file) => [plainName(file.name), file]));
  for (const [name, bytes] of files) {
    if (name === SIGNATURES) continue;
    const file = signed.get(plainName(name));
    if (file === undefined) throw new Error(`the signature does not list ${plainName(name)}`);
    if (file.algorithm !== HASH) throw new Error(`the hash of ${file.name} is not ${HASH}`);
    if (hashFile(name, bytes) !== file.hash) throw new Error(`${file.name} was changed after it was signed`);
    signed.delete(plainName(name));
  }
  const [missing] = signed.keys();
  if (missing !== undefined) throw new Error(`the signature lists ${missing}, which is missing`);
}

async function readSigned(
  files: Files,
  { keys = [], secrets = [], scope = '' }: Verifier,
): Promise<readonly SignedFile[]> {
  const bytes = files.get(SIGNATURES);
  if (bytes === undefined) throw new Error('it is not signed');
  const { signatures } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly signatures?: readonly unknown[] };
  const [token] = signatures ?? [];
  if (signatures?.length !== 1 || typeof token !== 'string')
    throw new Error('its .signatures.json does not contain exactly one token');
  for (const { key, algorithms } of [...keys.map(readPublic), ...secrets.map(readSecret)]) {
    const verified = await jwtVerify(token, key, { algorithms: [...algorithms] }).catch(() => undefined);
    if (verified === undefined) continue;
    if ((verified.payload.scope ?? '') !== scope) throw new Error('its signature has another scope');
    return requireList(verified.payload.files);
  }
  throw new Error('it is not signed by any of the keys');
}

function requireList(files: unknown): readonly SignedFile[] {
  const fits = (file: Partial<SignedFile> | null): boolean =>
    typeof file?.name === 'string' && typeof file.hash === 'string' && typeof file.algorithm === 'string';
  if (Array.isArray(files) && files.every(fits)) return files as readonly SignedFile[];
  throw new Error('its signature lists no files');
}

function readPublic(pem: string): { readonly key: KeyObject; readonly algorithms: readonly string[] } {
  const key = createPublicKey(pem);
  return { key, algorithms: FITTING[key.asymmetricKeyType ?? ''] ?? [] };
}

function readSecret(secret: string): { readonly key: Uint8Array; readonly algorithms: readonly string[] } {
  return { key: new TextEncoder().encode(secret), algorithms: ['HS256', 'HS384', 'HS512'] };
}

function requireKind(key: KeyObject, algorithm: SigningAlgorithm): KeyObject {
  if (FITTING[key.asymmetricKeyType ?? '']?.includes(algorithm) === true) return key;
  throw new Error(`a key of type ${key.asymmetricKeyType ?? 'unknown'} cannot sign with ${algorithm}`);
}

function plainName(name: string): string {
  return name.replace(/^(\.?\/)+/, '');
}

/** Hashes as OPA does: some files by their value, all others by their bytes. */
function hashFile(name: string, bytes: Uint8Array): string {
  if (UNREADABLE.test(name)) throw new Error(`${plainName(name)}: a signed bundle may have data only in data.json`);
  const hash = createHash('sha256');
  return (
    VALUES.test(name)
      ? hash.update(canonical(new TextDecoder('utf-8', { fatal: true }).decode(bytes)))
      : hash.update(bytes)
  ).digest('hex');
}

/**
 * Returns the canonical form of a JSON text: keys sorted by bytes, no white space, numbers unchanged, strings as Go
 * writes them.
 */
function canonical(text: string): string {
  JSON.parse(text);
  // A prefix marks strings and numbers, so that a number keeps its spelling through the parser.
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) =>
    token.startsWith('"') ? `"s${token.slice(1)}` : `"n${token}"`,
  );
  return spell(JSON.parse(marked));
}

function spell(value: unknown): string {
  if (typeof value === 'string') return value.startsWith('n') ? value.slice(1) : spellText(value.slice(1));
  if (Array.isArray(value)) return `[${value.map(spell).join(',')}]`;
  if (typeof value !== 'object' || value === null) return String(value);
  const entries = Object.entries(value)
    .map(([key, child]) => [key.slice(1), child] as const)
    .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return `{${entries.map(([key, child]) => `${spellText(key)}:${spell(child)}`).join(',')}}`;
}

/** Go escapes U+2028 and U+2029, and replaces half of a surrogate pair. */
function spellText(text: string): string {
  return JSON.stringify(Buffer.from(text).toString('utf8'))
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029');
}
