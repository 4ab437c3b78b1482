/** Shared parts of the sign-in tests: a state folder with its vault, a person with a browser, and one server. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { signIns } from '../../adapters/oauth/sign-in.ts';
import type { SignInParts } from '../../adapters/oauth/sign-in-credentials.ts';
import type { CredentialStore, SignInSummary } from '../../adapters/port.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { keepSignIns } from '../../facade/secrets/sign-ins.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { type Bench, chaos, HOST, serve } from '../stdio/misbehaving-server.ts';
import { Guarded, Issuer } from './issuer.ts';

/** A state folder with a vault. */
export interface Desk {
  readonly folder: string;
  readonly redactor: Redactor;
  readonly store: CredentialStore;
  /** Opens the same folder as another process would. */
  second(): CredentialStore;
  close(): void;
}

export function openDesk(): Desk {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-oauth-'));
  const closers: (() => void)[] = [];
  const redactor = new Redactor();
  const store = (): CredentialStore => {
    const state = openState(folder);
    closers.push(() => void state.close());
    return keepSignIns({ vault: openPlaces({ state: folder, env: {} }).vault, redactor, state });
  };
  return {
    folder,
    redactor,
    store: store(),
    second: store,
    close: () => {
      closers.forEach((close) => close());
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function settingsOf(url: string, more: Partial<ServerSettings> = {}): ServerSettings {
  const { command: _command, isolation: _isolation, ...rest } = chaos();
  return { ...rest, name: 'remote', transport: 'http', url, reconnectBackoffMs: 1, ...more };
}

/** Consents as a person would: opens the address, and follows the redirect. */
export async function consent(address: URL): Promise<string> {
  const response = await fetch(address, { redirect: 'manual' });
  const location = response.headers.get('location');
  if (location === null) return `${response.status} ${await response.text()}`;
  return (await fetch(location)).text();
}

/** The parts of one test. `close` closes them. */
export class Room {
  readonly desk = openDesk();
  readonly issuer = new Issuer();
  readonly secrets = new Map<string, string>();
  readonly shown: Parameters<SignInParts['show']>[0][] = [];
  readonly pages: Promise<string>[] = [];
  readonly benches: Bench[] = [];
  guarded = new Guarded(this.issuer);

  async open(kind: 'http' | 'sse' = 'http'): Promise<this> {
    this.guarded = new Guarded(this.issuer, kind);
    await Promise.all([this.issuer.open(), this.guarded.open()]);
    return this;
  }

  readonly secret = async (name: string): Promise<string> =>
    this.secrets.get(name) ?? Promise.reject(new Error('none'));

  signIn(more: Partial<ServerSettings> = {}, parts: Partial<SignInParts> = {}): Promise<SignInSummary> {
    const show: SignInParts['show'] = (consenting) => {
      this.shown.push(consenting);
      this.pages.push(consent(consenting.address));
    };
    return signIns.signIn({
      settings: settingsOf(this.guarded.mcp, more),
      store: this.desk.store,
      secrets: this.secret,
      show,
      signal: new AbortController().signal,
      waitMs: 2000,
      ...parts,
    });
  }

  /** Connects to the server through an adapter. */
  bench(more: Partial<ServerSettings> = {}, store: CredentialStore = this.desk.store): Bench {
    const bench = serve(settingsOf(this.guarded.mcp, more), {
      host: { ...HOST, credentials: store, secrets: this.secret },
    });
    this.benches.push(bench);
    return bench;
  }

  /** Returns the grants of the requests to the token endpoint. */
  grants(): readonly string[] {
    return this.issuer.heard
      .filter(({ path: at }) => at === '/token')
      .map(({ body }) => new URLSearchParams(body).get('grant_type') ?? '');
  }

  async close(): Promise<void> {
    await Promise.all(this.benches.map(({ pool }) => pool.stopAll()));
    this.issuer.close();
    this.guarded.close();
    this.desk.close();
  }
}
