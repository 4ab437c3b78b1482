import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { CompactSign } from 'jose';
import { describe, expect, it } from 'vitest';
import { packBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { type SigningAlgorithm, signFiles, verifyFiles } from '../../policies/rego/bundles/bundle-signatures.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';
import { scratch } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';

const opa = await findOpa();
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const PEM = {
  publicKeyEncoding: { type: 'spki', format: 'pem' },
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
} as const;
const rsa: Readonly<Record<'publicKey' | 'privateKey', string>> = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  publicKeyEncoding: PEM.publicKeyEncoding,
  privateKeyEncoding: PEM.privateKeyEncoding,
});
const ec: Readonly<Record<'publicKey' | 'privateKey', string>> = generateKeyPairSync('ec', {
  namedCurve: 'P-256',
  publicKeyEncoding: PEM.publicKeyEncoding,
  privateKeyEncoding: PEM.privateKeyEncoding,
});
const SECRET = 'a shared secret of some length';
const KEYS = [
  ['RS256', rsa.privateKey, { keys: [rsa.publicKey] }],
  ['ES256', ec.privateKey, { keys: [ec.publicKey] }],
  ['HS256', SECRET, { secrets: [SECRET] }],
] as const;

/** Values that can be written in several ways. */
const DATA =
  '{"b": 1.0, "a": [1e3, -0, "é<>&\\u2028\\u007f\\b\\f\\u0001\\"", true], "z": {"y":null, ' +
  '"x":12345678901234567890}, "\\ud83d\\ude00": 1, "\\uffee": [], "n5": "n5"}';
const FILES: ReadonlyMap<string, Uint8Array> = new Map([
  ['.manifest', utf8('{"rego_version": 1,\n "revision": "r", "roots": [""]}')],
  ['data.json', utf8(DATA)],
  ['policy.wasm', new Uint8Array([0, 97, 115, 109])],
  ['tollgate.json', utf8('{"version": 1}\n')],
]);

async function signed(algorithm: SigningAlgorithm, key: string, files = FILES): Promise<Map<string, Uint8Array>> {
  return new Map([...files, ['.signatures.json', utf8(await signFiles(files, { algorithm, key }))]]);
}

describe('a signed bundle', () => {
  it.each(KEYS)('%s: is verified with its key only', async (algorithm, key, verifier) => {
    const files = await signed(algorithm, key);
    await expect(verifyFiles(files, verifier)).resolves.toBeUndefined();
    for (const [other, , wrong] of KEYS)
      if (other !== algorithm)
        await expect(verifyFiles(files, wrong)).rejects.toThrow('it is not signed by any of the keys');
    await expect(verifyFiles(files, {})).rejects.toThrow('any of the keys');
    await expect(
      verifyFiles(files, {
        keys: [...KEYS].flatMap(([, , one]) => ('keys' in one ? one.keys : [])),
        secrets: [SECRET],
      }),
    ).resolves.toBeUndefined();
  });

  it('has equal text for equal files', async () => {
    for (const [algorithm, key] of [KEYS[0], KEYS[2]])
      expect(await signFiles(FILES, { algorithm, key })).toBe(
        await signFiles(new Map([...FILES].reverse()), { algorithm, key }),
      );
  });

  it.each([
    [
      'a file was changed',
      (files: Map<string, Uint8Array>) => files.set('policy.wasm', utf8('other')),
      'policy.wasm was changed',
    ],
    [
      'a value was changed',
      (files: Map<string, Uint8Array>) => files.set('data.json', utf8(DATA.replace('1.0', '1.00'))),
      'data.json was changed',
    ],
    [
      'a file was added',
      (files: Map<string, Uint8Array>) => files.set('more.rego', utf8('package x')),
      'the signature does not list more.rego',
    ],
    [
      'a file is gone',
      (files: Map<string, Uint8Array>) => files.delete('policy.wasm'),
      'the signature lists policy.wasm, which is missing',
    ],
    ['nothing is signed', (files: Map<string, Uint8Array>) => files.delete('.signatures.json'), 'it is not signed'],
    [
      'there are two tokens',
      (files: Map<string, Uint8Array>) => files.set('.signatures.json', utf8('{"signatures":["a","b"]}')),
      'not contain exactly one token',
    ],
    [
      'there is no token',
      (files: Map<string, Uint8Array>) => files.set('.signatures.json', utf8('{}')),
      'not contain exactly one token',
    ],
    ['data is YAML', (files: Map<string, Uint8Array>) => files.set('sub/data.yaml', utf8('a: 1')), 'does not list'],
  ])('is refused when %s', async (_name, change, expected) => {
    const files = await signed('RS256', rsa.privateKey);
    change(files);
    await expect(verifyFiles(files, { keys: [rsa.publicKey] })).rejects.toThrow(expected);
  });

  it('is accepted if only white space and the order of keys in its data changed', async () => {
    const files = await signed('RS256', rsa.privateKey);
    files.set('.manifest', utf8('{"roots":[""],"revision":"r","rego_version":1}'));
    await expect(verifyFiles(files, { keys: [rsa.publicKey] })).resolves.toBeUndefined();
  });

  it('with the right key is refused if it lists no files or uses another hash', async () => {
    for (const [payload, expected] of [
      [{ files: [{ name: 1 }] }, 'lists no files'],
      [{}, 'lists no files'],
      [{ files: [{ name: 'policy.wasm', hash: 'x', algorithm: 'MD5' }] }, 'is not SHA-256'],
    ] as const) {
      const token = await new CompactSign(utf8(JSON.stringify(payload)))
        .setProtectedHeader({ alg: 'HS256' })
        .sign(utf8(SECRET));
      const files = new Map([
        ['policy.wasm', utf8('w')],
        ['.signatures.json', utf8(JSON.stringify({ signatures: [token] }))],
      ]);
      await expect(verifyFiles(files, { secrets: [SECRET] })).rejects.toThrow(expected);
    }
  });

  it('is refused if the public key was used as an HMAC secret (algorithm confusion)', async () => {
    const files = await signed('HS256', rsa.publicKey);
    await expect(verifyFiles(files, { keys: [rsa.publicKey] })).rejects.toThrow('any of the keys');
  });

  it('is refused if it needs no key (alg none)', async () => {
    const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const files = new Map([
      ...FILES,
      ['.signatures.json', utf8(JSON.stringify({ signatures: [`${part({ alg: 'none' })}.${part({ files: [] })}.`] }))],
    ]);
    await expect(verifyFiles(files, { keys: [rsa.publicKey], secrets: [''] })).rejects.toThrow('any of the keys');
  });

  it('with a scope is refused for another scope, and for none', async () => {
    const files = new Map([
      ...FILES,
      ['.signatures.json', utf8(await signFiles(FILES, { algorithm: 'HS256', key: SECRET, scope: 'read' }))],
    ]);
    await expect(verifyFiles(files, { secrets: [SECRET], scope: 'read' })).resolves.toBeUndefined();
    for (const verifier of [{ secrets: [SECRET], scope: 'write' }, { secrets: [SECRET] }])
      await expect(verifyFiles(files, verifier)).rejects.toThrow('its signature has another scope');
  });

  it('cannot be made with an unfit key, or with data in YAML', async () => {
    await expect(signFiles(FILES, { algorithm: 'ES256', key: rsa.privateKey })).rejects.toThrow(
      'a key of type rsa cannot sign with ES256',
    );
    await expect(
      signFiles(new Map([['data.yaml', utf8('a: 1')]]), { algorithm: 'HS256', key: SECRET }),
    ).rejects.toThrow('a signed bundle may have data only in data.json');
  });
});

describe('signatures', () => {
  async function signedByOpa(files: ReadonlyMap<string, string>): Promise<Map<string, Uint8Array>> {
    const folder = scratch();
    mkdirSync(path.join(folder, 'b'));
    for (const [name, text] of files) writeFileSync(path.join(folder, 'b', name), text);
    const { code, stderr } = await runOpa(
      opa,
      ['sign', '--signing-alg', 'HS256', '--signing-key', SECRET, '--bundle', 'b'],
      folder,
    );
    expect(code, stderr).toBe(0);
    return new Map([
      ...[...files].map(([name, text]) => [`b/${name}`, utf8(text)] as const),
      ['.signatures.json', readFileSync(path.join(folder, '.signatures.json'))],
    ]);
  }

  it('of opa are verified by Tollgate, with equal hashes', async () => {
    const files = new Map(
      [...FILES]
        .filter(([name]) => name !== 'policy.wasm')
        .map(([name, bytes]) => [name, new TextDecoder().decode(bytes)]),
    );
    await expect(verifyFiles(await signedByOpa(files), { secrets: [SECRET] })).resolves.toBeUndefined();
  });

  it('of opa are verified by Tollgate for any data', async () => {
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fc.string({ unit: 'grapheme', minLength: 1 }), fc.jsonValue()), async (data) => {
        await expect(
          verifyFiles(await signedByOpa(new Map([['data.json', JSON.stringify(data)]])), { secrets: [SECRET] }),
        ).resolves.toBeUndefined();
      }),
      { numRuns: roundsOf(25, 6) },
    );
  }, 60_000);

  it.each([
    ['RS256', rsa],
    ['ES256', ec],
  ] as const)(
    'with %s of Tollgate are verified by opa, which refuses a changed bundle',
    async (algorithm, { privateKey, publicKey }) => {
      const folder = scratch({ 'key.pem': publicKey });
      const files = new Map([
        ['.manifest', utf8('{"revision":"r","roots":["x","d"],"rego_version":1}')],
        ['data.json', utf8('{"d":{"n":1.50,"t":"é\\u2028"}}')],
        ['x.rego', utf8('package x\n\ny := data.d.n\n')],
        ['tollgate.json', utf8('{"version": 1}\n')],
      ]);
      const bundle = await signed(algorithm, privateKey, files);
      const evaluate = async (content: ReadonlyMap<string, Uint8Array>) => {
        writeFileSync(path.join(folder, 'b.tar.gz'), packBundle(content));
        return runOpa(
          opa,
          [
            'build',
            ...opa.flags,
            '-b',
            'b.tar.gz',
            '--verification-key',
            'key.pem',
            '--signing-alg',
            algorithm,
            '-o',
            'out.tar.gz',
          ],
          folder,
        );
      };
      expect(await evaluate(bundle)).toMatchObject({ code: 0 });
      expect(await evaluate(new Map([...bundle, ['x.rego', utf8('package x\n\ny := 2\n')]]))).toMatchObject({
        code: 1,
      });
    },
  );
});
