/** Runs every story of test/stories/pipeline/ over each transport and under each exposure. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { partOf, RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { type Answer, type Recorded, startFacade, type TestFacade } from './facade.ts';

interface Story {
  readonly name: string;
  readonly verifies?: readonly string[];
  readonly call: { readonly tool: string; readonly args: unknown };
  readonly want: {
    readonly code?: string;
    readonly rpc?: number;
    readonly text?: string;
    readonly contains?: string;
    readonly contains2?: string;
    readonly isError?: boolean;
    readonly structured?: unknown;
    readonly meta?: Record<string, unknown>;
    readonly noMeta?: readonly string[];
    readonly types?: readonly string[];
  };
  readonly audit: readonly Recorded[];
}

const here = import.meta.dirname;
const server = path.join(here, '..', 'fixtures', 'story-server.mjs');
const stories = parse(readFileSync(path.join(here, 'pipeline', 'calls.yaml'), 'utf8')) as Story[];
const rules = readFileSync(path.join(here, 'pipeline', 'rules.yaml'), 'utf8');
const TOOLS = [...new Set(stories.map((story) => story.call.tool))].filter((tool) => tool !== 'nothing-here');

const READS = TOOLS.filter((tool) => !['open', 'fetch', 'wipe', 'count'].includes(tool));

function config(transport: string): string {
  return `version: 1
workspace: ./workspace
state: ./state
approvals: { waitMs: 0 }
servers:
  story:
    ${transport}
    isolation: direct
    connectTimeoutMs: 20000
    timeoutMs: 2000
    hardTimeoutMs: 2000
    labels: [public]
    semantics:
      open: { verb: destructive, paths: [path, paths] }
      fetch: { verb: destructive, urls: [url] }
      wipe: destructive
      count: destructive
${READS.map((tool) => `      ${tool}: read`).join('\n')}
principals:
  - { id: plain, role: developer, profiles: [plain], stdio: true }
  - { id: aliased, role: developer, profiles: [aliased], stdio: true }
  - { id: searched, role: developer, profiles: [searched], stdio: true }
profiles:
  plain: { servers: [story], expose: { primitives: {}, tools: ["story.*"] } }
  searched: { servers: [story], expose: { primitives: {}, tools: ["story.*"], search: true } }
  aliased:
    servers: [story]
    expose:
      primitives: {}
      tools:
${TOOLS.map((tool) => `        - { tool: story.${tool}, name: x_${tool} }`).join('\n')}
policies: [./rules.yaml]
budgets:
  - { id: two-fails, scope: session, calls: 2, when: { tool: story.fail } }
`;
}

async function serve(mode: 'http' | 'sse'): Promise<{ child: ChildProcess; url: string }> {
  const child = spawn(process.execPath, [server, mode], { stdio: ['pipe', 'ignore', 'pipe'] });
  const port = await new Promise<string>((resolve, reject) => {
    child.on('exit', () => reject(new Error('the story server ended')));
    child.stderr?.on('data', (chunk: Buffer) => {
      const found = /port (\d+)/.exec(chunk.toString('utf8'))?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  return { child, url: `http://127.0.0.1:${port}/${mode === 'http' ? 'mcp' : 'sse'}` };
}

describe.each(['stdio', 'http', 'sse'] as const)('the stories over %s', (mode) => {
  let facade: TestFacade;
  let child: ChildProcess | undefined;

  beforeAll(async () => {
    const remote = mode === 'stdio' ? undefined : await serve(mode);
    child = remote?.child;
    const key = 'env: { STORY_KEY: "${STORY_KEY}" }';
    const transport =
      remote === undefined
        ? `command: ${process.execPath}\n    args: [${server}]\n    ${key}`
        : `transport: ${mode}\n    url: ${remote.url}\n    headers: { x-key: "\${STORY_KEY}" }`;
    facade = await startFacade(config(transport), {
      files: { 'rules.yaml': rules },
      env: { STORY_KEY: 'story-key-1234567' },
    });
  }, 60_000);
  afterAll(async () => {
    await facade.close();
    child?.kill();
  });

  /** Returns all stories for one exposure over stdio. For the others by default those that differ: that reach a server. */
  const storiesOf = (principal: string): readonly Story[] => {
    if (mode === 'stdio') return partOf(stories, principal === 'plain' ? stories.length : 12);
    const reaching = stories.filter(({ audit }) => audit.some(({ type }) => type === 'intent'));
    return RUNS_ALL ? stories : partOf(reaching, principal === 'plain' ? reaching.length : 2);
  };
  // What is different for a wrapped call ends before it reaches a connection.
  const exposures = ['plain', 'aliased', ...(mode === 'stdio' ? ['searched'] : [])];
  describe.each(exposures)('exposed as %s', (principal) => {
    let session: Session;
    beforeAll(() => {
      session = facade.open(principal);
    });

    it.each(
      storiesOf(principal).map(
        (story) => [story.name + (story.verifies === undefined ? '' : verifies(...story.verifies)), story] as const,
      ),
    )('%s', async (_, story) => {
      const before = facade.records().length;
      const { tool, args } = story.call;
      const plain = exposedName('story', tool);
      const answer =
        principal === 'searched'
          ? await facade.call(session, 'call_write', { name: plain, arguments: args })
          : await facade.call(session, principal === 'plain' ? plain : `x_${tool}`, args);
      judge(answer, story.want);
      // Approvals have their own stories in test/approvals/stories.yaml.
      const records = facade
        .records()
        .slice(before)
        .filter((record) => record.type !== 'server' && record.type !== 'approval');
      expect(records).toHaveLength(story.audit.length);
      for (const [index, wanted] of story.audit.entries())
        expect(records[index]).toMatchObject({
          ...wanted,
          session: session.id,
          ...(principal === 'searched' && { via: 'call_write' }),
        });
      expect(new Set(records.map((record) => record.id)).size).toBe(1);
    });

    it('give a call the same effect digest under every exposure, and keep payloads out of the log', async () => {
      const digests = new Set<unknown>();
      const args = { text: 'a very special payload' };
      for (const [other, name, given] of [
        ['plain', 'story_echo', args],
        ['aliased', 'x_echo', args],
        ['searched', 'call_write', { name: 'story_echo', arguments: args }],
      ] as const) {
        const before = facade.records().length;
        await facade.call(facade.open(other), name, given);
        for (const record of facade.records().slice(before))
          if (record.effectDigest !== undefined) digests.add(record.effectDigest);
      }
      expect(digests.size).toBe(1);
      expect(JSON.stringify(facade.records())).not.toContain('special payload');
    });
  });
});

function judge(answer: Answer, want: Story['want']): void {
  if (want.code !== undefined) expect(answer.code, answer.text).toBe(want.code);
  else expect(answer.code, answer.text).toBe('');
  if (want.rpc !== undefined) expect(answer.error?.code).toBe(want.rpc);
  if (want.text !== undefined) expect(answer.text).toBe(want.text);
  for (const part of [want.contains, want.contains2]) if (part !== undefined) expect(answer.text).toContain(part);
  if (want.isError !== undefined) expect(answer.result?.isError).toBe(want.isError);
  if (want.structured !== undefined) expect(answer.result?.structuredContent).toEqual(want.structured);
  if (want.meta !== undefined) expect(answer.result?._meta).toMatchObject(want.meta);
  for (const key of want.noMeta ?? []) expect(answer.result?._meta).not.toHaveProperty([key]);
  if (want.types !== undefined) expect(answer.result?.content?.map((item) => item.type)).toEqual(want.types);
}
