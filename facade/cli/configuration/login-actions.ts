/** Runs `login` and `logout` at a terminal. It prints no token, and opens a browser only if a person can see it. */
import { spawn } from 'node:child_process';
import type { SignInParts, SignInSummary, StartInspector } from '../../../adapters/port.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper } from '../../../catalogs/programs/helper-programs.ts';
import { createDigest, readAuditKey } from '../../audit/key-files.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { Consents } from '../../consent/servers/server-consents.ts';
import { Redactor } from '../../output/redactor.ts';
import { openSecrets } from '../../secrets/secrets.ts';
import { keepSignIns } from '../../secrets/sign-ins.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { printable, printResult } from '../print.ts';
import { askKey } from '../terminal-prompt.ts';
import type { Wiring } from '../wiring.ts';
import { openPlacesFor } from './secret-actions.ts';

type Named = LoginOptions & { readonly server: string };
type LoginParts = Pick<Wiring, 'signIns' | 'inspect'>;
type Opened = Pick<SignInParts, 'settings' | 'store' | 'secrets'> & { readonly consents: Consents };

/** Signs in and stores the tokens. Throws USAGE, CONFIG_INVALID, and as SignIns.signIn. */
export async function runLogin(
  options: Named & { readonly browser: boolean; readonly scope?: readonly string[] },
  io: Io,
  { signIns, inspect }: LoginParts,
): Promise<number> {
  return withStore(options, { io, inspect }, async (opened) => {
    const stop = new AbortController();
    void io.stopped.then(() => stop.abort());
    const opens = options.browser && io.isTTY && options.json !== true;
    const show: SignInParts['show'] = ({ address, issuer, scopes }) => {
      const rights = scopes.length === 0 ? '' : `It asks for: ${printable(scopes.join(', '))}.\n`;
      const host = new URL(issuer).host;
      io.stderr(
        `Consent at ${host} within five minutes, in a browser of this machine:\n\n  ${address.href}\n\n${rights}`,
      );
      if (opens) openBrowser(address, io);
    };
    const { consents, ...parts } = opened;
    const addScopes = scopesIn(options.scope);
    const refusal = await consents.refuseProbe(parts.settings);
    if (refusal !== undefined) throw refusal;
    const signedIn = await signIns.signIn({
      ...parts,
      show,
      signal: stop.signal,
      ...(addScopes !== undefined && { addScopes }),
    });
    const { expiresAt, ...facts } = signedIn;
    printResult(
      { io, options },
      {
        server: options.server,
        ...facts,
        ...(expiresAt !== undefined && { expiresAt: new Date(expiresAt).toISOString() }),
      },
      printable(signedInText(options.server, signedIn)),
    );
    return EXIT.ok;
  });
}

/** Offers a person at a terminal to sign in. Returns whether there is a sign-in now. Throws CANCELLED. */
export async function offerSignIn(options: Named, io: Io, parts: LoginParts): Promise<boolean> {
  if ((await askKey(io, `${printable(options.server)} requires a sign-in. Sign in now?`, 'yn')) !== 'y') return false;
  try {
    return (await runLogin({ ...options, browser: true }, io, parts)) === EXIT.ok;
  } catch (thrown) {
    const error = asTollgateError(thrown);
    if (error.code === 'CANCELLED') throw error;
    io.stderr(`${printable(`${error.message} ${error.next}`)}\n`);
    return false;
  }
}

/** Throws USAGE for a scope that RFC 6749 §3.3 does not allow. */
function scopesIn(words: readonly string[] | undefined): readonly string[] | undefined {
  const wrong = words?.find((word) => !/^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/.test(word));
  if (wrong === undefined) return words;
  throw new TollgateError('USAGE', {
    detail: `"${printable(wrong).slice(0, 64)}" is not a scope.`,
    next: 'Write each scope as one word: --scope read write.',
  });
}

/** Signs out. Throws USAGE, CONFIG_INVALID, SECRET_MISSING if there was no sign-in, and as SignIns.signOut. */
export async function runLogout(options: Named, io: Io, { signIns, inspect }: LoginParts): Promise<number> {
  return withStore(options, { io, inspect }, async (opened) => {
    const { removed, revoked } = await signIns.signOut(opened);
    if (!removed)
      throw new TollgateError('SECRET_MISSING', {
        detail: `You are not signed in to server "${options.server}", so there is nothing to sign out of.`,
        next: '`tollgate secret list` shows all sign-ins.',
      });
    const tokens = revoked
      ? 'The issuer has revoked the tokens.'
      : 'The issuer did not revoke the tokens: they expire, or you revoke them in your account there. ' +
        'A running Tollgate keeps its token until then; `tollgate kill` ends that.';
    printResult({ io, options }, { server: options.server, revoked }, `Signed out of ${options.server}. ${tokens}`);
    return EXIT.ok;
  });
}

async function withStore(
  options: Named,
  { io, inspect }: { readonly io: Io; readonly inspect: StartInspector },
  work: (opened: Opened) => Promise<number>,
): Promise<number> {
  const config = readForOwner(options, io);
  const settings = serverOf(config, options.server);
  const redactor = new Redactor();
  const places = openPlacesFor(config, io);
  return withState(config, async (state) => {
    const consents = new Consents(state, {
      folder: config.folder,
      inspect,
      digest: createDigest(readAuditKey(config.state)),
    });
    return await work({
      settings,
      consents,
      store: keepSignIns({ vault: places.vault, redactor, state }),
      secrets: openSecrets(() => config, { places, redactor }),
    });
  });
}

function serverOf(config: Config, name: string): SignInParts['settings'] {
  const server = config.servers.get(name);
  if (server === undefined)
    throw new TollgateError('USAGE', {
      detail: `There is no server "${printable(name).slice(0, 64)}" in tollgate.yaml.`,
      next: `Name one with a url; ${didYouMean(name, config.servers.keys())}`,
    });
  if (server.transport === 'stdio')
    throw new TollgateError('USAGE', {
      detail: `Server "${name}" is a program on this machine. login is for servers with a url.`,
      next: 'Pass it a token in env, from the vault: `tollgate secret set NAME`.',
    });
  const isWritten = Object.keys(server.headers).some((header) => header.toLowerCase() === 'authorization');
  if (isWritten)
    throw new TollgateError('USAGE', {
      detail:
        `Server "${name}" has a header Authorization in tollgate.yaml, ` + 'which takes precedence over every sign-in.',
      next: 'Remove the header, then sign in.',
    });
  return server;
}

function signedInText(server: string, { scopes, expiresAt, renewable }: SignInSummary): string {
  const rights = scopes.length === 0 ? '' : ` with ${scopes.join(', ')}`;
  const end =
    expiresAt === undefined
      ? ''
      : renewable
        ? '; it renews itself'
        : `, until ${new Date(expiresAt).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  return `Signed in to ${server}${rights}${end}.`;
}

/**
 * Opens the address without a shell (CVE-2025-6514); it is https or of this machine. If no program opens it, it is on
 * the screen.
 */
function openBrowser(address: URL, { env }: Io): void {
  const { TOLLGATE_VAULT_PASSPHRASE: _passphrase, ...given } = env;
  const program = process.platform === 'darwin' ? '/usr/bin/open' : findHelper('xdg-open');
  if (program === undefined) return;
  spawn(program, [address.href], { env: given, shell: false, detached: true, stdio: 'ignore' })
    .on('error', () => undefined)
    .unref();
}
/** Options of both commands. */
export type LoginOptions = Pick<CommonOptions, 'config' | 'json'>;
