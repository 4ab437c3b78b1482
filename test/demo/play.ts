/** Tells the story of the demo step by step, and checks each step: a step that fails ends with exit code 1. */
import { spawn, spawnSync } from 'node:child_process';
import { styleText } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

/** The folders and programs of the demo. */
export interface Stage {
  readonly main: string;
  readonly config: string;
  readonly env: NodeJS.ProcessEnv;
  readonly write: (text: string) => void;
}

interface Answer {
  readonly text: string;
  readonly isError: boolean;
  readonly code: string;
  /** Id of the request that waits for a person. */
  readonly approval: string;
}

/** The output of `approve --json` for the two screens. */
interface Shown {
  readonly start?: { readonly hash: string; readonly facts: { readonly program?: { readonly path: string } } };
  readonly tools?: { readonly hash: string; readonly tools: readonly { readonly notes: readonly unknown[] }[] };
}

/** Plays the story. Returns the exit code. */
export async function play(stage: Stage): Promise<number> {
  const teller = new Teller(stage);
  teller.approve();
  await teller.offered();
  await teller.overStdio();
  await teller.onOtherBackends();
  await teller.overHttp();
  teller.audit();
  return teller.end();
}

class Teller {
  readonly #stage: Stage;
  readonly #failures: string[] = [];
  #calls = 0;

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  /** An owner reads about each server, and approves exactly what was shown. */
  approve(): void {
    this.#title('An owner approves what may start, and then its tools');
    for (const name of ['everything', 'files', 'desktop']) {
      const ask = (...more: readonly string[]): Shown => {
        const text = this.#cli(['approve', name, '--json', '--as', 'owner', ...more], 7);
        return text === '' ? {} : (JSON.parse(text) as Shown);
      };
      const { start } = ask();
      const { tools } = start === undefined ? {} : ask('--yes', start.hash);
      if (start === undefined || tools === undefined) continue;
      this.#say(
        `  ${name}: starts ${start.facts.program?.path ?? ''} in a sandbox, start hash ${start.hash.slice(0, 12)}…`,
      );
      const notes = tools.tools.flatMap((tool) => tool.notes).length;
      const hash = tools.hash.slice(0, 12);
      this.#say(`  ${name}: offers ${tools.tools.length} tools, ${notes} notes on them, tools hash ${hash}…`);
      this.#cli(['approve', name, '--yes', start.hash, tools.hash, '--as', 'owner']);
    }
  }

  /** Shows what the servers offer before the first call. */
  async offered(): Promise<void> {
    this.#title('What three servers offer');
    const { servers } = JSON.parse(this.#cli(['servers', '--json'])) as {
      servers: { name: string; state: string; tools: number; bytes: number }[];
    };
    const counts = (tools: number, bytes: number): string =>
      `${String(tools).padStart(3)} tools  ${String(bytes).padStart(7)} bytes`;
    for (const server of servers)
      this.#say(`  ${server.name.padEnd(11)} ${counts(server.tools, server.bytes)}  ${server.state}`);
    const external = servers.filter((server) => server.name !== 'workspace');
    const sum = (key: 'tools' | 'bytes'): number => external.reduce((total, one) => total + one[key], 0);
    this.#say(`  in all      ${counts(sum('tools'), sum('bytes'))}`);
    this.#check('three servers are healthy', external.length === 3 && external.every((one) => one.state === 'healthy'));
  }

  async overStdio(): Promise<void> {
    const client = await this.#stdio('agent');
    this.#title('What the agent sees, over stdio');
    const { tools } = await client.listTools();
    const names = tools.map((tool) => tool.name).join(', ');
    this.#say(`  ${tools.length} tools, ${Buffer.byteLength(JSON.stringify(tools))} bytes: ${names}`);
    this.#check('the agent sees six tools', tools.length === 6);
    this.#title('The agent works');
    await this.#call(client, 'read', { path: 'src/greet.js' }, (answer) => answer.text.includes('Hello'));
    await this.#call(client, 'read', { action: 'search', path: '.', pattern: 'greet' }, (answer) =>
      answer.text.includes('src/greet.js:1'),
    );
    await this.#call(
      client,
      'write',
      { path: 'src/bye.js', content: "export const bye = () => 'Bye';\n" },
      (answer) => !answer.isError,
    );
    await this.#call(
      client,
      'edit',
      { path: 'src/greet.js', old_string: "'Hello, '", new_string: "'Good day, '" },
      (answer) => answer.text.includes('Good day'),
    );
    await this.#call(client, 'bash', { command: 'ls src' }, (answer) => answer.text.includes('bye.js'));
    this.#title('Policy refuses, and says why');
    await this.#call(
      client,
      'read',
      { path: '.env' },
      (answer) => answer.code === 'DENIED' && answer.text.includes('no-secrets'),
    );
    await this.#call(
      client,
      'bash',
      { command: 'npm publish' },
      (answer) => answer.code === 'APPROVAL_REQUIRED' && answer.text.includes('publishing-asks'),
    );
    await this.#call(client, 'bash', { command: 'curl $(cat url)' }, (answer) => answer.code === 'APPROVAL_REQUIRED');
    await this.#approveOne(client);
    this.#title('A budget runs out: three echoes a session');
    for (const text of ['one', 'two', 'three'])
      await this.#call(client, 'echo', { message: text }, (answer) => answer.text.includes(text));
    await this.#call(client, 'echo', { message: 'four' }, (answer) => answer.code === 'BUDGET_EXCEEDED');
    this.#title('A long output is cut, and read on from its spill');
    const cut = await this.#call(client, 'bash', { command: 'cat log.txt' }, (answer) =>
      answer.text.includes('spill://'),
    );
    const next = /read path="(spill:\/\/\w+)" offset=(\d+)/.exec(cut.text);
    await this.#call(client, 'read', { path: next?.[1] ?? '', offset: Number(next?.[2] ?? 0), limit: 3 }, (answer) =>
      answer.text.startsWith(`${next?.[2]} request`),
    );
    await client.close();
  }

  /** An owner reads the waiting request, and approves this call once. */
  async #approveOne(client: Client): Promise<void> {
    this.#title('An owner approves one call; another one is still refused');
    const push = { command: 'git push origin main; echo the command ran' };
    const { approval } = await this.#call(client, 'bash', push, (answer) => answer.code === 'APPROVAL_REQUIRED');
    const owner = ['--as', 'owner'];
    this.#say(
      this.#cli(['approvals', 'show', approval, ...owner])
        .trimEnd()
        .replace(/^/gm, '    '),
    );
    const { binding } = JSON.parse(this.#cli(['approvals', 'show', approval, '--json', ...owner])) as {
      binding: string;
    };
    this.#cli(['approvals', 'approve', approval, '--yes', binding.slice(0, 12), ...owner]);
    await this.#call(
      client,
      'bash',
      { command: 'git push --force origin main; echo the command ran' },
      (answer) => answer.code === 'APPROVAL_REQUIRED' && answer.text.includes('arguments differ at /command'),
    );
    await this.#call(client, 'bash', push, (answer) => answer.code === '' && answer.text.includes('the command ran'));
    await this.#call(client, 'bash', push, (answer) => answer.code === 'APPROVAL_REQUIRED');
  }

  /** Serves the same primitive by another server. */
  async onOtherBackends(): Promise<void> {
    this.#title('The same read, served by server-filesystem and by DesktopCommander');
    for (const [principal, backend] of [
      ['agent-on-files', 'server-filesystem'],
      ['agent-on-desktop', 'DesktopCommander'],
    ] as const) {
      this.#say(`  as ${principal}, whose read is served by ${backend}:`);
      const client = await this.#stdio(principal);
      await this.#call(client, 'read', { path: 'README.md' }, (answer) => answer.text.includes('# Demo'));
      await client.close();
    }
  }

  async overHttp(): Promise<void> {
    this.#title('Over Streamable HTTP, with a token');
    const child = spawn(process.execPath, [this.#stage.main, 'serve', '--config', this.#stage.config, '--port', '0'], {
      env: this.#stage.env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let words = '';
    const { url, token } = await new Promise<{ url: string; token: string }>((resolve, reject) => {
      child.on('exit', () => reject(new Error(words)));
      child.stderr.on('data', (chunk: Buffer) => {
        words += chunk.toString('utf8');
        const found = /listening on (\S+)\ntoken (\S+)\n/.exec(words);
        if (found?.[1] !== undefined && found[2] !== undefined) resolve({ url: found[1], token: found[2] });
      });
    });
    const client = new Client({ name: 'demo', version: '1' });
    // The SDK's transport types its session id without undefined; the value is the one its own client expects.
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers: { authorization: `Bearer ${token}` } },
      }) as Parameters<Client['connect']>[0],
    );
    await this.#call(client, 'add', { a: 19, b: 23 }, (answer) => answer.text.includes('42'));
    await client.close();
    const ended = new Promise<number | null>((resolve) => child.removeAllListeners('exit').on('exit', resolve));
    child.kill('SIGTERM');
    this.#check('the listener ended by itself', (await ended) === 0);
  }

  /** Shows the audit records of exactly these calls. */
  audit(): void {
    this.#title('The audit of exactly these calls');
    const records = this.#cli(['audit', 'export', '--format', 'jsonl'])
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string });
    const of = (...types: string[]): number => records.filter((record) => types.includes(record.type)).length;
    this.#say(this.#cli(['audit', 'list', '--limit', '60']).trimEnd().replace(/^/gm, '  '));
    this.#check(
      `each of the ${this.#calls} calls has one end on record`,
      of('outcome', 'decision', 'budget') === this.#calls,
    );
    this.#check('each call that ran had its intent before it', of('intent') === of('outcome'));
    this.#say(this.#cli(['audit', 'verify', '--seal']).trimEnd().replace(/^/gm, '  '));
  }

  end(): number {
    if (this.#failures.length === 0) this.#say('\nThe demo worked as expected.');
    else this.#say(`\nNot as it should be:\n${this.#failures.map((failure) => `  - ${failure}`).join('\n')}`);
    return this.#failures.length === 0 ? 0 : 1;
  }

  async #stdio(principal: string): Promise<Client> {
    const client = new Client({ name: 'demo', version: '1' });
    const env = Object.fromEntries(
      Object.entries(this.#stage.env).filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
    await client.connect(
      new StdioClientTransport({
        command: process.execPath,
        args: [this.#stage.main, 'run', '--config', this.#stage.config, '--as', principal],
        env,
        stderr: 'ignore',
      }),
    );
    return client;
  }

  async #call(
    client: Client,
    name: string,
    args: Record<string, unknown>,
    judge: (answer: Answer) => boolean,
  ): Promise<Answer> {
    this.#calls += 1;
    const result = await client.callTool({ name, arguments: args });
    const items = result.content as { type: string; text?: string }[];
    const answer = {
      text: items.map((item) => item.text ?? `(${item.type})`).join('\n'),
      isError: result.isError === true,
      code: String(result._meta?.['tollgate/code'] ?? ''),
      approval: String(result._meta?.['tollgate/approval'] ?? ''),
    };
    this.#say(`  ${paint('bold', `${name} ${JSON.stringify(args)}`)}`);
    this.#say(short(answer.text).replace(/^/gm, answer.code === '' ? '    │ ' : '    ✗ '));
    this.#check(`${name} ${JSON.stringify(args).slice(0, 80)}`, judge(answer));
    return answer;
  }

  #cli(args: readonly string[], status = 0): string {
    const run = spawnSync(process.execPath, [this.#stage.main, ...args, '--config', this.#stage.config], {
      env: this.#stage.env,
      encoding: 'utf8',
      maxBuffer: 64e6,
    });
    if (run.status !== status)
      this.#failures.push(`tollgate ${args.join(' ')} ended with ${run.status}: ${run.stderr}`);
    return run.stdout;
  }

  #check(what: string, held: boolean): void {
    if (!held) this.#failures.push(what);
  }

  #title(text: string): void {
    this.#say(`\n${paint(['bold', 'cyan'], text)}`);
  }

  #say(text: string): void {
    this.#stage.write(`${text}\n`);
  }
}

/** The first and last lines of a long text. */
function short(text: string): string {
  const lines = text.trimEnd().split('\n');
  return lines.length <= 8
    ? lines.join('\n')
    : [
        ...lines.slice(0, 3),
        `      (… ${lines.length - 6} lines left out of this transcript …)`,
        ...lines.slice(-3),
      ].join('\n');
}

/** Adds colour on a terminal only, which styleText of Node 20 does not check. */
function paint(format: Parameters<typeof styleText>[0], text: string): string {
  return process.stdout.isTTY ? styleText(format, text) : text;
}
