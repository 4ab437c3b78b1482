/** A facade with a project folder whose configuration tests edit and reload. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Config } from '../../facade/config/config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { assembleOnDemand } from '../../facade/main.ts';
import type { AssembledFacade } from '../../facade/runtime/assembled-facade.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { approveAll } from '../consent/approve-servers.ts';

/** An audit record. */
export type Recorded = Readonly<Record<string, unknown>>;

/** The answer of a call. */
export interface Said {
  readonly text: string;
  readonly code: string;
  readonly meta: Readonly<Record<string, unknown>>;
}

/** A folder with a configuration, and a facade over it. */
export class Reloadable {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'tollgate-reload-'));
  readonly env: Record<string, string | undefined> = { ...process.env };
  assembled!: AssembledFacade;

  constructor(files: Readonly<Record<string, string>>) {
    mkdirSync(path.join(this.folder, 'workspace'));
    for (const [name, text] of Object.entries(files)) this.write(name, text);
  }

  async start(): Promise<this> {
    await this.approve();
    this.assembled = await assembleOnDemand(this.read(), {});
    return this;
  }

  at(name: string): string {
    return path.join(this.folder, name);
  }

  write(name: string, text: string | Uint8Array): void {
    mkdirSync(path.dirname(this.at(name)), { recursive: true });
    writeFileSync(this.at(name), text);
  }

  read(): Config {
    return loadConfig(this.at('tollgate.yaml'), { env: this.env, home: '/home/nobody-at-all' });
  }

  /** Approves the servers of the present configuration. */
  async approve(): Promise<void> {
    await approveAll(this.read());
  }

  reload(listening = false): Promise<readonly string[]> {
    return this.assembled.reload(() => this.read(), listening);
  }

  open(principal: string, transport: 'stdio' | 'http' = 'stdio'): Session {
    return this.assembled.gateway.openSession(
      principalForStdio(this.read(), { user: 'nobody-else', as: principal }),
      transport,
    );
  }

  async call(session: Session, name: string, args: unknown, signal = new AbortController().signal): Promise<Said> {
    const reply = await this.assembled.gateway.perform(session, {
      name,
      args: parseJsonDoc(JSON.stringify(args)),
      signal,
    });
    if (reply.kind === 'error')
      return {
        text: reply.error.message,
        code: String((reply.error.data as { code?: unknown } | undefined)?.code ?? ''),
        meta: {},
      };
    const result = JSON.parse(joinText(reply.text)) as ToolResult;
    const meta = result._meta ?? {};
    return {
      text: (result.content ?? []).map(({ text }) => (typeof text === 'string' ? text : '')).join('\n'),
      code: String(meta['tollgate/code'] ?? ''),
      meta,
    };
  }

  async list(session: Session): Promise<readonly string[]> {
    const reply = await this.assembled.gateway.list(session, 'tools/list', session.closed);
    if (reply.kind === 'error') throw new Error(reply.error.message);
    return (JSON.parse(joinText(reply.text)) as { tools: { name: string }[] }).tools.map(({ name }) => name);
  }

  records(type?: string): readonly Recorded[] {
    const { folder } = this.assembled.config.audit;
    const lines = readdirSync(folder)
      .filter((name) => name.endsWith('.jsonl'))
      .sort()
      .flatMap((name) => readFileSync(path.join(folder, name), 'utf8').split('\n'));
    return lines
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Recorded)
      .filter((record) => type === undefined || record.type === type);
  }

  async close(): Promise<void> {
    await this.assembled?.gateway.close();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Returns a configuration with its rules in rules.yaml; `more` is YAML of other sections. */
export function configure(more = ''): string {
  return `version: 1\nworkspace: ./workspace\nstate: ./state\npolicies: [rules.yaml]\n${more}`;
}

/** Returns the text of a rules file. */
export function rules(...all: readonly object[]): string {
  return JSON.stringify({ rules: all });
}
