/** Listens on this machine for the browser that returns from a sign-in. It answers only the expected request. */
import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { loginFailed, signInStopped } from './sign-in-credentials.ts';

/** The answer of the issuer. */
export interface AuthorizationResponse {
  readonly code: string;
  /** RFC 9207. */
  readonly issuer?: string;
}

/** An open listener. */
export interface CallbackListener {
  /** For the authorization request, and for the registration of the client. */
  readonly redirectUrl: string;
  /**
   * Waits for the answer with this `state`. Throws LOGIN_FAILED if the person refused or did not answer in time, and
   * CANCELLED.
   */
  wait(
    state: string,
    limits: { readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<AuthorizationResponse>;
  close(): void;
}

const PATH = '/callback';
const DONE = 'Signed in. You can close this page.\n';

/** Listens on 127.0.0.1. Port 0 picks a free port. Throws LOGIN_FAILED if the port is in use. */
export async function openCallbackListener(port: number): Promise<CallbackListener> {
  let answer: (request: IncomingMessage) => { readonly status: number; readonly text: string } = () => ({
    status: 404,
    text: 'No sign-in waits for an answer.\n',
  });
  const server = createServer((request, response) => reply(response, answer(request)));
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) =>
      reject(
        loginFailed(
          `Port ${port} of this machine, to which the browser must return, is in use.`,
          'Free it, or change oauth.callbackPort and the redirect address that is registered with the issuer.',
          cause,
        ),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    redirectUrl: `http://${host}${PATH}`,
    wait: (state, limits) =>
      settleInTime(limits, (resolve, reject) => {
        answer = (request) => {
          const found = readAnswer(request, { host, state });
          if (found === undefined) return { status: 400, text: 'This is not the expected answer.\n' };
          answer = () => ({ status: 410, text: 'This sign-in has ended.\n' });
          if ('code' in found) {
            resolve(found);
            return { status: 200, text: DONE };
          }
          reject(
            loginFailed(
              `The sign-in was refused (${found.error}).`,
              'Run it again and consent, or ask the owner of the server for access.',
            ),
          );
          return { status: 200, text: 'The sign-in was refused.\n' };
        };
      }),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/**
 * Reads the answer of the issuer. Every program on this machine, and every page in its browser, can send requests here.
 * Only a request with the right state counts.
 */
function readAnswer(
  request: IncomingMessage,
  { host, state }: { readonly host: string; readonly state: string },
): AuthorizationResponse | { readonly error: string } | undefined {
  if (request.method !== 'GET' || request.headers.host !== host) return undefined;
  const url = new URL(request.url ?? '', `http://${host}`);
  const [given, expected] = [Buffer.from(url.searchParams.get('state') ?? ''), Buffer.from(state)];
  if (url.pathname !== PATH || given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
  const [code, error, issuer] = ['code', 'error', 'iss'].map((name) => url.searchParams.get(name));
  if (error != null) return { error: /^[a-z_]{1,40}$/.test(error) ? error : 'no reason that can be shown' };
  return code == null || code === '' ? undefined : { code, ...(issuer != null && { issuer }) };
}

function reply(response: ServerResponse, { status, text }: { readonly status: number; readonly text: string }): void {
  // The address of the page holds the code: no other page may see it in Referer, and no cache may keep it.
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

/** Runs `start` until it settles, the time is over, or the signal aborts. */
function settleInTime<T>(
  { waitMs, signal }: { readonly waitMs: number; readonly signal: AbortSignal },
  start: (resolve: (value: T) => void, reject: (error: Error) => void) => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let cancel = (): void => undefined;
  return new Promise<T>((resolve, reject) => {
    cancel = () => reject(signInStopped());
    if (signal.aborted) return cancel();
    signal.addEventListener('abort', cancel, { once: true });
    const late = loginFailed(
      `The sign-in was not completed within ${Math.ceil(waitMs / 1000)} s.`,
      'Run it again, and open the address in a browser of this machine.',
    );
    timer = setTimeout(() => reject(late), waitMs);
    start(resolve, reject);
  }).finally(() => {
    clearTimeout(timer);
    signal.removeEventListener('abort', cancel);
  });
}
