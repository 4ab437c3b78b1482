/** Starts the fixture of the conformance suite, a server that implements every feature of MCP. */
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { CONFORMANCE_PACKAGES } from '../servers/install.ts';
import { NODE_22 } from './official-suite.ts';

const FILES = { http: 'everything-http.ts', stdio: 'everything-stdio.ts' } as const;

/** The programs of the fixture, in a folder with the packages that they import. */
export interface FixtureFiles {
  readonly folder: string;
  readonly http: string;
  readonly stdio: string;
}

/** What the fixture offers, by name. */
export interface Offer {
  readonly tools: readonly string[];
  readonly prompts: readonly string[];
}

/**
 * Prepares the fixture in a new folder. Throws with what to do if the folder of the corpora, `TOLLGATE_CORPORA` or the
 * one next to the project, has no fixture.
 */
export function prepareFixture(folder: string, root: string): FixtureFiles {
  const corpora = path.resolve(process.env.TOLLGATE_CORPORA ?? path.join(root, '..', 'shared', 'corpora'));
  const source = path.join(corpora, 'conformance');
  const missing = Object.values(FILES).filter((file) => !existsSync(path.join(source, file)));
  if (missing.length > 0)
    throw new Error(
      `${source} has no ${missing.join(' and ')}. The fixture is not part of this repository.\n` +
        'Set TOLLGATE_CORPORA to the folder that contains conformance/, and run the command again.',
    );
  mkdirSync(folder, { recursive: true });
  copyFileSync(path.join(source, FILES.http), path.join(folder, FILES.http));
  const stdio = readFileSync(path.join(source, FILES.stdio), 'utf8');
  writeFileSync(
    path.join(folder, FILES.stdio),
    stdio.replace(/modernHandler\.notify\.(tools|prompts)Changed\(\)/g, announce),
  );
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}\n');
  symlinkSync(path.join(CONFORMANCE_PACKAGES, 'node_modules'), path.join(folder, 'node_modules'));
  return { folder, http: path.join(folder, FILES.http), stdio: path.join(folder, FILES.stdio) };
}

/** The copy over stdio refers to the HTTP handler, which it does not have. The server itself can announce changes. */
function announce(_call: string, list: string): string {
  return `mcpServer.send${list === 'tools' ? 'Tool' : 'Prompt'}ListChanged()`;
}

/** A running fixture. */
export interface Fixture {
  readonly url: string;
  readonly offer: Offer;
  stop(): Promise<void>;
}

/** Starts the fixture over HTTP on a free port of loopback, and lists it. */
export async function startFixture({ folder, http }: FixtureFiles): Promise<Fixture> {
  const port = await freePort();
  const child = spawn(NODE_22, [http], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  await saysIt(child, /MCP endpoint/);
  const url = `http://127.0.0.1:${port}/mcp`;
  return { url, offer: await offerOf(url), stop: () => stopChild(child) };
}

async function offerOf(url: string): Promise<Offer> {
  const client = new Client({ name: 'tollgate-conformance', version: '1' });
  // The class of the SDK does not meet its own interface under exactOptionalPropertyTypes.
  await client.connect(new StreamableHTTPClientTransport(new URL(url)) as Transport);
  const { tools } = await client.listTools();
  const { prompts } = await client.listPrompts();
  await client.close();
  return { tools: tools.map(({ name }) => name), prompts: prompts.map(({ name }) => name) };
}

/** Resolves when the child has written a line that matches. Rejects with its output if it ends before. */
export function saysIt(child: ChildProcess, what: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const take = (chunk: Buffer): void => {
      text += chunk.toString('utf8');
      if (what.test(text)) resolve(text);
    };
    child.stdout?.on('data', take);
    child.stderr?.on('data', take);
    child.on('error', reject);
    child.on('close', (code) => reject(new Error(`${child.spawnargs.join(' ')} ended with ${code}:\n${text}`)));
  });
}

/** Ends a child: SIGTERM, and SIGKILL after 15 s. */
export function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
    child.on('close', () => {
      clearTimeout(late);
      resolve();
    });
    child.kill('SIGTERM');
  });
}

/** Returns a port of loopback on which nothing listens. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
