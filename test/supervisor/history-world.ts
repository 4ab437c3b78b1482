/**
 * The world of a random history: one folder, two facades over it that open on demand, servers that misbehave by a plan,
 * and the calls that they really carried out.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { ApprovalOwner } from '../approvals/owner-context.ts';
import { server } from '../cli/terminal.ts';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';

export const BUDGET = 8;
export const PRINCIPALS = ['alice', 'bob'] as const;
/** How a server starts. `turncoat` lists other tools to every second client. */
export const MODES = ['ok', 'noise', 'turncoat', 'crash-at-start', 'refuse'] as const;
export type Mode = (typeof MODES)[number];

/** The files of server `one` on the disk: its program, and the tools that it lists. */
export interface Version {
  readonly script: number;
  readonly list: number;
}

/** One call: its caller, its tool and its answer. */
export interface Made {
  readonly id: string;
  readonly who: string;
  readonly tool: string;
  readonly token: string;
  /** The index of the decisions in force at the start; `until`: at the time of the answer. */
  readonly since: number;
  readonly answer: Promise<Answer & { readonly until: number }>;
  readonly cancel: AbortController;
}

/** A call that a server carried out. */
export interface Done {
  readonly call: string;
  readonly script?: string;
  readonly list?: number;
}

const CHAOS = path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs');
const tool = (name: string, description: string): RawTool => ({ name, description, inputSchema: { type: 'object' } });

/** Returns the tools that server `one` lists. Only `dice` changes. */
export function toolsOf(list: number): readonly RawTool[] {
  return [tool('same', 'Always the same.'), tool('ask', 'A person is asked.'), tool('dice', `Version ${list}.`)];
}

/** One folder, and the facades and servers that use it. */
export class World {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'tollgate-history-'));
  readonly calls: Made[] = [];
  readonly #config: string;
  readonly #facades: (TestFacade | undefined)[] = [];
  readonly #sessions = new Map<string, Session>();
  desk!: ApprovalOwner;
  killSwitch!: KillSwitch;

  constructor(seed: number) {
    const env = (more: string): string =>
      `env: {CHAOS_STARTS: ${this.file('starts')}, CHAOS_CALLS: ${this.file('calls')}, CHAOS_SEED: "${seed}"${more}}, ` +
      'timeoutMs: 250, maxRetries: 50';
    const plan = env(`, CHAOS_PLAN: ${this.file('plan')}`);
    const command = JSON.stringify(process.execPath);
    const one = `{command: ${command}, args: [${this.file('server.mjs')}], isolation: direct, ${plan}}`;
    this.#config = `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: 0}
servers: {one: ${one}, two: ${server(['chaos.mjs'], `${env('')}, lifetime: keep-alive`)}}
principals: [{id: alice, stdio: true}, {id: bob, stdio: true}]
profiles: {default: {servers: [one, two], expose: {primitives: workspace, tools: ["one.*", "two.dice"]}}}
rules: [{id: all, outcome: allow, when: {}}, {id: asks, outcome: ask, when: {tools: [one.ask]}}]
budgets: [{id: throws, scope: principal, calls: ${BUDGET}, when: {tool: dice}}]
`;
  }

  async open(): Promise<void> {
    this.#facades[0] = await startFacade(this.#config, { folder: this.folder, approved: ['two'] });
    this.desk = new ApprovalOwner(this.facade.assembled.config.state);
    this.killSwitch = new KillSwitch(this.desk.state);
  }

  file(name: string): string {
    return path.join(this.folder, name);
  }

  /** The first facade. */
  get facade(): TestFacade {
    return this.#facades[0] as TestFacade;
  }

  /** Returns the facade with this index. It behaves as in another process. */
  async at(index: number): Promise<TestFacade> {
    return (this.#facades[index] ??= await startFacade(this.#config, { folder: this.folder, approved: [] }));
  }

  async session(index: number, who: string): Promise<Session> {
    const key = `${index}/${who}`;
    const session = this.#sessions.get(key) ?? (await this.at(index)).open(who);
    this.#sessions.set(key, session);
    return session;
  }

  /** Waits until no start of server `one` is in progress. */
  async started(): Promise<void> {
    for (const facade of this.#facades)
      await facade?.assembled.catalog.servers
        .get('one')
        ?.adapter.listTools()
        .catch(() => undefined);
  }

  async leave(index: number, who: string): Promise<void> {
    const session = this.#sessions.get(`${index}/${who}`);
    this.#sessions.delete(`${index}/${who}`);
    if (session !== undefined) await this.#facades[index]?.assembled.gateway.closeSession(session);
  }

  async restart(index: number): Promise<void> {
    for (const who of PRINCIPALS) this.#sessions.delete(`${index}/${who}`);
    await this.#facades[index]?.close();
    this.#facades[index] = undefined;
    if (index === 0) await this.at(0);
  }

  /** Writes the program of server `one`, how it will start, and what it will list. */
  write({ script, list }: Version, mode: Mode): void {
    writeFileSync(
      this.file('plan'),
      JSON.stringify({ mode, list, tools: toolsOf(list), other: { list: -list, tools: toolsOf(-list) } }),
    );
    writeFileSync(
      this.file('server.mjs'),
      `// ${script}\nprocess.env.CHAOS_SCRIPT = '${script}';\nawait import(${JSON.stringify(pathToFileURL(CHAOS))});\n`,
    );
  }

  /** Returns all calls that servers carried out so far, in order. */
  done(): readonly Done[] {
    return existsSync(this.file('calls'))
      ? readFileSync(this.file('calls'), 'utf8')
          .trimEnd()
          .split('\n')
          .map((line) => JSON.parse(line) as Done)
      : [];
  }

  async close(): Promise<void> {
    for (const facade of this.#facades) await facade?.close();
    await this.desk.close();
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}
