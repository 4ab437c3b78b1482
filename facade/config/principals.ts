/** Reads principals and their tokens. Literal tokens, weak tokens and tokens of two principals are refused. */
import { createHash } from 'node:crypto';
import type { PrincipalConfig } from './config.ts';
import { type Path, type ProblemReport, quote } from './config-problems.ts';
import { DEFAULTS, type WrittenPrincipal } from './written-config.ts';

/** The shortest token, in characters. 16 hexadecimal digits are 64 bits; a shorter token could be guessed. */
const MIN_TOKEN = 16;

/** The settings of a principal that the file does not write. */
const UNWRITTEN = { ...DEFAULTS.principal, groups: [], profiles: ['default'], registers: [] };

/** The only principal if the file defines none: the person who started Tollgate. */
const LOCAL: PrincipalConfig = { ...UNWRITTEN, id: 'local', client: 'local', stdio: true, owner: true };

/** Checks and completes the principals. `raw`: the file before variables were filled in, to find literal tokens. */
export function buildPrincipals(
  written: readonly WrittenPrincipal[] | undefined,
  raw: unknown,
  report: ProblemReport,
): readonly PrincipalConfig[] {
  if (written === undefined) return [LOCAL];
  const ids = new Set<string>();
  const hashes = new Set<string>();
  const principals: PrincipalConfig[] = [];
  written.forEach((principal, index) => {
    const path = ['principals', index];
    const { id } = principal;
    if (ids.has(id))
      report.refuse(
        [...path, 'id'],
        `principal ${quote(id)} appears twice: policies and audit could not tell them apart; rename one`,
      );
    const tokenHash = readToken(principal, rawToken(raw, index), { path: [...path, 'token'], report });
    if (tokenHash !== undefined && hashes.has(tokenHash))
      report.refuse([...path, 'token'], 'another principal has this token: a caller would be both; give each its own');
    ids.add(id);
    if (tokenHash !== undefined) hashes.add(tokenHash);
    const { token: _token, ...settings } = principal;
    principals.push({ ...UNWRITTEN, client: id, ...settings, ...(tokenHash !== undefined && { tokenHash }) });
  });
  return principals;
}

function rawToken(raw: unknown, index: number): string {
  return (raw as { principals?: readonly { token?: string }[] }).principals?.[index]?.token ?? '';
}

/** Returns the hex SHA-256 of the token. No message shows any part of it. */
function readToken(
  { token }: WrittenPrincipal,
  raw: string,
  { path, report }: { readonly path: Path; readonly report: ProblemReport },
): string | undefined {
  if (token === undefined) return undefined;
  const [, hash] = /^sha256:(.*)$/is.exec(token) ?? [];
  const fault = hash === undefined ? tokenFault(token, raw) : hashFault(hash);
  if (fault === undefined) return hash?.toLowerCase() ?? createHash('sha256').update(token).digest('hex');
  report.refuse(path, fault);
  return undefined;
}

function hashFault(hash: string): string | undefined {
  if (/^[0-9a-f]{64}$/i.test(hash)) return undefined;
  return (
    'the token hash is not 64 hex digits after sha256:, so no token could match it; make one with: ' +
    'printf %s "$TOKEN" | sha256sum'
  );
}

function tokenFault(token: string, raw: string): string | undefined {
  if (!raw.includes('${'))
    return (
      'the token is in the file in clear: anyone who reads the file could call; write ${env:NAME}, or its hash as ' +
      'sha256:<64 hex digits>'
    );
  if (token.length >= MIN_TOKEN) return undefined;
  return (
    `the token of this variable is shorter than ${MIN_TOKEN} characters and could be guessed; make one with: ` +
    'openssl rand -hex 32'
  );
}
