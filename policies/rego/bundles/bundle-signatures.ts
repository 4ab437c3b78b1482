/** Owns OPA's form of signed bundles (`.signatures.json`): a JWT over the hash of every file; refuses files that it does not name, and algorithms that do not fit the key. */
import { createHash, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { CompactSign, jwtVerify } from 'jose';

/** Name of the file in a bundle. It is signed by nobody. */
const SIGNATURES = '.signatures.json';
const HASH = 'SHA-256';
/** Files that OPA reads as values: their hash is that of the value, so that white space and the order of keys do not count. */
const VALUES = /(^|\/)(data\.json|\.manifest)$/;
/** OPA would take these as values too, and we read no YAML here. */
const UNREADABLE = /(^|\/)data\.ya?ml$/;

/** What a signature is made with, as OPA names it. */
export const ALGORITHMS = ['RS256', 'ES256', 'HS256'] as const;
export type SigningAlgorithm = (typeof ALGORITHMS)[number];

/** A key for signing: PEM of a private key, or the shared secret of HS256. */
export interface SigningKey {
  readonly algorithm: SigningAlgorithm;
  readonly key: string;
  /** What the bundle may be used for, as its readers ask; absent: anything. */
  readonly scope?: string;
}

/** What a signature is verified with. */
export interface Verifier {
  /** PEM of public keys or certificates. */
  readonly keys?: readonly string[];
  /** For HMAC. */
  readonly secrets?: readonly string[];
  /** The scope that must be signed; absent: none may be. */
  readonly scope?: string;
}

/** Algorithms that a kind of key verifies: a public key must never be taken for the secret of an HMAC. */
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
 * The text of `.signatures.json` for these files. It holds no time: with RS256 and HS256 the same files give the same text.
 * Throws Error when the key does not fit the algorithm.
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
 * Verifies that one of the keys has signed exactly these files. Throws Error with what is wrong: no signature, no key that
 * fits, another scope, a file that is changed, missing or not named.
 */
export async function verifyFiles(files: Files, verifier: Verifier): Promise<void> {
  const signed = new Map((await readSigned(files, verifier)).map((file) => [plainName(file.name), file]));
  for (const [name, bytes] of files) {
    if (name === SIGNATURES) continue;
    const file = signed.get(plainName(name));
    if (file === undefined) throw new Error(`${plainName(name)} is not named by the signature`);
    if (file.algorithm !== HASH) throw new Error(`the hash of ${file.name} is not ${HASH}`);
    if (hashFile(name, bytes) !== file.hash) throw new Error(`${file.name} was changed after it was signed`);
    signed.delete(plainName(name));
  }
  const [missing] = signed.keys();
  if (missing !== undefined) throw new Error(`${missing} is named by the signature and is not there`);
}

async function readSigned(
  files: Files,
  { keys = [], secrets = [], scope = '' }: Verifier,
): Promise<readonly SignedFile[]> {
  const bytes = files.get(SIGNATURES);
  if (bytes === undefined) throw new Error('it is not signed');
  const { signatures } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly signatures?: readonly unknown[] };
  const [token] = signatures ?? [];
  if (signatures?.length !== 1 || typeof token !== 'string') throw new Error('its signature is not one token');
  for (const { key, algorithms } of [...keys.map(readPublic), ...secrets.map(readSecret)]) {
    const verified = await jwtVerify(token, key, { algorithms: [...algorithms] }).catch(() => undefined);
    if (verified === undefined) continue;
    if ((verified.payload.scope ?? '') !== scope) throw new Error('it is signed for another scope');
    return requireList(verified.payload.files);
  }
  throw new Error('none of the keys has signed it');
}

function requireList(files: unknown): readonly SignedFile[] {
  const fits = (file: Partial<SignedFile> | null): boolean =>
    typeof file?.name === 'string' && typeof file.hash === 'string' && typeof file.algorithm === 'string';
  if (Array.isArray(files) && files.every(fits)) return files as readonly SignedFile[];
  throw new Error('its signature names no files');
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
  throw new Error(`a key of the kind ${key.asymmetricKeyType ?? 'unknown'} does not sign with ${algorithm}`);
}

function plainName(name: string): string {
  return name.replace(/^(\.?\/)+/, '');
}

/** As OPA does: files that are values by their value, all others by their bytes. */
function hashFile(name: string, bytes: Uint8Array): string {
  if (UNREADABLE.test(name)) throw new Error(`${plainName(name)}: data of a signed bundle is data.json`);
  const hash = createHash('sha256');
  return (
    VALUES.test(name)
      ? hash.update(canonical(new TextDecoder('utf-8', { fatal: true }).decode(bytes)))
      : hash.update(bytes)
  ).digest('hex');
}

/** One spelling of a JSON text: keys sorted by bytes, no white space, numbers as they are written, texts as Go writes them. */
function canonical(text: string): string {
  JSON.parse(text);
  // Marked, so that a number keeps its spelling through the parser and no text can be taken for one.
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

/** Go escapes the two separators that JavaScript once could not hold, and knows no half of a surrogate pair. */
function spellText(text: string): string {
  return JSON.stringify(Buffer.from(text).toString('utf8'))
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029');
}
