/** Creates a key and a self-signed X.509 certificate for one name. Each test run creates new ones. */
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';

/** One DER element (X.690). */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const length =
    body.length < 128
      ? [body.length]
      : body.length < 256
        ? [0x81, body.length]
        : [0x82, body.length >> 8, body.length & 255];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

const [SEQUENCE, SET, INTEGER, BITS, OCTETS, UTF8, TIME, BOOLEAN] = [0x30, 0x31, 0x02, 0x03, 0x04, 0x0c, 0x17, 0x01];
const COMMON_NAME = Buffer.from('0603550403', 'hex');
const ECDSA_SHA256 = Buffer.from('06082a8648ce3d040302', 'hex');
const ALT_NAME = Buffer.from('0603551d11', 'hex');
const CONSTRAINTS = Buffer.from('0603551d13', 'hex');

/** Returns the PEM of a self-signed certificate for `name` and of its key. It is valid from yesterday for two days. */
export function makeCertificate(name: string): { readonly cert: string; readonly key: string } {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const subject = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8, Buffer.from(name)))));
  const time = (days: number): Buffer =>
    der(
      TIME,
      Buffer.from(`${new Date(Date.now() + days * 86_400_000).toISOString().slice(2, 19).replace(/[-:T]/g, '')}Z`),
    );
  const extension = (id: Buffer, value: Buffer): Buffer => der(SEQUENCE, id, der(OCTETS, value));
  const extensions = der(
    0xa3,
    der(
      SEQUENCE,
      extension(ALT_NAME, der(SEQUENCE, der(0x82, Buffer.from(name)))),
      extension(CONSTRAINTS, der(SEQUENCE, der(BOOLEAN, Buffer.from([255])))),
    ),
  );
  const algorithm = der(SEQUENCE, ECDSA_SHA256);
  const body = der(
    SEQUENCE,
    der(0xa0, der(INTEGER, Buffer.from([2]))),
    der(INTEGER, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    subject,
    der(SEQUENCE, time(-1), time(1)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    extensions,
  );
  const signature = der(BITS, Buffer.from([0]), sign('sha256', body, privateKey));
  const cert = der(SEQUENCE, body, algorithm, signature)
    .toString('base64')
    .match(/.{1,64}/g)
    ?.join('\n');
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${cert}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}
