/** Owns the address on this machine to which a browser brings the answer of a sign-in; refuses every request but that one. */
import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** What the issuer answered. */
export interface AuthorizationResponse {
  readonly code: string;
  /** RFC 9207. */
  readonly issuer?: string;
}

/** A listener that is open. */
export interface CallbackListener {
  /** For the request, and for the registration of the client. */
  readonly redirectUrl: string;
  /** The answer with this `state`. Throws LOGIN_FAILED when the person refused or did not answer in time, CANCELLED. */
  wait(
    state: string,
    limits: { readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<AuthorizationResponse>;
  close(): void;
}

const PATH = '/callback';
const DONE = 'Signed in. You can close this page.\n';

/** Listens on 127.0.0.1; port 0 picks a free one. Throws LOGIN_FAILED when the port is taken. */
export async function openCallbackListener(port: number): Promise<CallbackListener> {
  let answer: (request: IncomingMessage) => { readonly status: number; readonly text: string } = () => ({
    status: 404,
    text: 'Nothing is asked here.\n',
  });
  const server = createServer((request, response) => reply(response, answer(request)));
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(
        new TollgateError('LOGIN_FAILED', {
          detail: `Port ${port} of this machine is taken, and the sign-in ends there.`,
          next: 'Free it, or change oauth.callbackPort and what is registered with the issuer.',
          cause,
        }),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    redirectUrl: `http://${host}${PATH}`,
    wait: (state, limits) =>
      awaited(limits, (resolve, reject) => {
        answer = (request) => {
          const found = read(request, { host, state });
          if (found === undefined) return { status: 400, text: 'This is not the answer that is waited for.\n' };
          answer = () => ({ status: 410, text: 'This sign-in is over.\n' });
          if ('code' in found) resolve(found);
          else
            reject(
              new TollgateError('LOGIN_FAILED', {
                detail: `The sign-in was refused (${found.error}).`,
                next: 'Run it again and consent, or ask the owner of the server for the rights.',
              }),
            );
          return 'code' in found ? { status: 200, text: DONE } : { status: 200, text: 'The sign-in was refused.\n' };
        };
      }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Anybody on this machine, and every page in its browser, can send something here: only who knows the state is heard. */
function read(
  request: IncomingMessage,
  { host, state }: { readonly host: string; readonly state: string },
): AuthorizationResponse | { readonly error: string } | undefined {
  if (request.method !== 'GET' || request.headers.host !== host) return undefined;
  const url = new URL(request.url ?? '', `http://${host}`);
  const [given, expected] = [Buffer.from(url.searchParams.get('state') ?? ''), Buffer.from(state)];
  if (url.pathname !== PATH || given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
  const [code, error, issuer] = ['code', 'error', 'iss'].map((name) => url.searchParams.get(name));
  if (error != null) return { error: /^[a-z_]{1,40}$/.test(error) ? error : 'no reason that could be shown' };
  return code == null || code === '' ? undefined : { code, ...(issuer != null && { issuer }) };
}

function reply(response: ServerResponse, { status, text }: { readonly status: number; readonly text: string }): void {
  // The address holds the code: no page may see it in Referer, and no cache may keep it.
  response
    .writeHead(status, {
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      connection: 'close',
    })
    .end(text);
}

function awaited<T>(
  { waitMs, signal }: { readonly waitMs: number; readonly signal: AbortSignal },
  start: (resolve: (value: T) => void, reject: (error: Error) => void) => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = (): void =>
      reject(
        new TollgateError('CANCELLED', { detail: 'The sign-in was stopped.', next: 'Run it again when you want it.' }),
      );
    if (signal.aborted) return cancel();
    signal.addEventListener('abort', cancel, { once: true });
    const timer = setTimeout(
      () =>
        reject(
          new TollgateError('LOGIN_FAILED', {
            detail: `Nobody answered within ${Math.ceil(waitMs / 1000)} s.`,
            next: 'Run it again, and open the address in a browser of this machine.',
          }),
        ),
      waitMs,
    );
    const done = (settle: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', cancel);
      settle();
    };
    start(
      (value) => done(() => resolve(value)),
      (error) => done(() => reject(error)),
    );
  });
}
