/** Runs every story of test/stories/operations/, with a server over stdio and over HTTP. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { partOf } from '../harness/slices.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ClientAnswers, type ProtocolFacade, type Step, startProtocol } from '../protocol/protocol-facade.ts';
import { verifies } from '../verifies.ts';
import type { Recorded } from './facade.ts';

interface OperationStory {
  readonly name: string;
  readonly verifies?: readonly string[];
  readonly server?: Readonly<Record<string, Step>>;
  readonly client?: ClientAnswers;
  readonly request: { readonly method: string; readonly params?: unknown };
  readonly want: {
    readonly result?: object;
    readonly error?: object;
    readonly contains?: string;
    readonly received?: readonly unknown[];
  };
  readonly audit: readonly Recorded[];
}

type Answer = Readonly<Record<string, unknown>>;

const file = path.join(import.meta.dirname, 'operations', 'operations.yaml');
const stories = parse(readFileSync(file, 'utf8')) as OperationStory[];
const CAPABILITIES = {
  tools: {},
  resources: { subscribe: true },
  prompts: {},
  completions: {},
  logging: {},
  tasks: { requests: { tools: { call: {} } } },
};
const LISTS = {
  'tools/list': {
    raw: JSON.stringify({ tools: [tool('act'), tool('long', { execution: { taskSupport: 'required' } })] }),
  },
  'prompts/list': { raw: '{"prompts":[{"name":"sum","arguments":[{"name":"text","required":true}]}]}' },
};
const CONFIG = {
  profiles: {
    p: {
      servers: ['docs', 'mail'],
      expose: { primitives: {}, tools: ['docs.*'], resources: ['docs'], prompts: ['docs.*'] },
    },
  },
  prompts: { 'docs.sum': { template: 'Sum up {{text}}.' } },
  rules: [
    { id: 'tools', outcome: 'allow', when: { servers: ['docs'] } },
    { id: 'reads', outcome: 'allow', when: { kind: ['resource', 'prompt', 'completion'] } },
    { id: 'asks', outcome: 'allow', when: { kind: ['sampling', 'elicitation', 'roots'] } },
    {
      id: 'few-tokens',
      outcome: 'deny',
      message: 'Few.',
      when: { kind: 'sampling', asks: { maxTokens: { min: 1001 } } },
    },
    { id: 'inside', outcome: 'deny', message: 'Inside.', when: { insideWorkspace: false } },
  ],
};
const BIG = 'A'.repeat(2_000_000);

/** Waits for the end of the task that an answer names: a call that takes longer than 50 ms is answered before it ends. */
async function ended(client: Awaited<ReturnType<ProtocolFacade['connect']>>, answer: Answer): Promise<Answer> {
  let { task } = (answer.result ?? {}) as { readonly task?: { readonly taskId: string; readonly status: string } };
  if (task?.status !== 'working') return answer;
  const { taskId } = task;
  while (task?.status === 'working') task = (await client.request('tasks/get', { taskId })).result as typeof task;
  return { result: { task } };
}

describe.each(['stdio', 'http'] as const)('the stories of operations, with a server over %s', (transport) => {
  let facade: ProtocolFacade;
  const docs = (answers: OperationStory['server'] = {}) => ({
    capabilities: CAPABILITIES,
    answers: { ...LISTS, ...(JSON.parse(JSON.stringify(answers).replace('$BIG', BIG)) as typeof answers) },
  });

  beforeAll(async () => {
    const settings = {
      asks: ['sampling', 'elicitation', 'roots'],
      semantics: { act: 'read', long: 'read' },
      ...(transport === 'stdio' ? { env: { KEY: '${KEY}' } } : { headers: { 'x-key': '${KEY}' } }),
    };
    facade = await startProtocol({ docs: { ...docs(), settings }, mail: {} }, CONFIG, {
      env: { KEY: 'story-key-1234567' },
      transport,
    });
    // Started before its script changes, because consent covers the files that it is started with.
    await (await facade.connect()).request('tools/list');
  }, 60_000);
  afterAll(() => facade.close());

  it.each(
    partOf(stories, transport === 'stdio' ? stories.length : 8).map(
      (story) => [story.name + (story.verifies === undefined ? '' : verifies(...story.verifies)), story] as const,
    ),
  )('%s', async (_, { server, client: answers, request, want, audit }) => {
    facade.rescript('docs', docs(server));
    const client = await facade.connect({
      capabilities: { sampling: {}, elicitation: {}, roots: {} },
      ...(answers !== undefined && { answers }),
    });
    const before = facade.callRecords().length;
    const { result, error } = await ended(client, await client.request(request.method, request.params));
    if (want.result !== undefined) expect(result).toMatchObject(want.result);
    if (want.error !== undefined) expect(error).toMatchObject(want.error);
    else expect(error).toBeUndefined();
    if (want.contains !== undefined) expect(JSON.stringify(result)).toContain(want.contains);
    if (want.received !== undefined) {
      expect(client.received).toMatchObject(want.received);
      expect(client.received).toHaveLength(want.received.length);
    }
    const calls = facade.callRecords().slice(before);
    expect(calls).toMatchObject(audit);
    expect(calls).toHaveLength(audit.length);
    await client.close();
  });
});
