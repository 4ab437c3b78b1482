/**
 * Runs the stories of stories.yaml under every exposure, and checks the call, the reply, and the records of the
 * approval.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { Session } from '../../facade/serve/facade-port.ts';
import type { ApprovalScope } from '../../policies/port.ts';
import { partOf } from '../harness/slices.ts';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import type { Recorded } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ApprovalOwner } from './owner-context.ts';

interface Step {
  readonly call?: unknown;
  readonly tool?: 'group';
  readonly want?: {
    readonly code?: string;
    readonly contains?: string;
    readonly contains2?: string;
    readonly sent?: string;
  };
  readonly audit?: readonly Recorded[];
  readonly approve?: ApprovalScope;
  readonly deny?: string;
}
interface Story {
  readonly name: string;
  readonly verifies?: readonly string[];
  readonly primitive?: boolean;
  readonly steps: readonly Step[];
}

const stories = parse(readFileSync(path.join(import.meta.dirname, 'stories.yaml'), 'utf8')) as Story[];

/** The names by which the tools are called. The last one asks under one name and repeats under the other. */
const EXPOSURES: Readonly<Record<string, (step: Step, number: number) => string>> = {
  'passed through': ({ tool: kind }) => (kind === 'group' ? 'one_fold' : 'one_put'),
  aliased: ({ tool: kind }) => (kind === 'group' ? 'bend' : 'save'),
  'one after the other': ({ tool: kind }, number) =>
    number % 2 === 0 ? (kind === 'group' ? 'bend' : 'save') : kind === 'group' ? 'one_fold' : 'one_put',
};

let facade: RawFacade;
let owner: ApprovalOwner;
let session: Session;

beforeEach(async () => {
  facade = await startRaw(
    { one: { tools: [tool('put'), tool('fold'), tool('bind')] } },
    {
      principals: [
        { id: 'me', profiles: ['all'], stdio: true },
        { id: 'olga', owner: true, stdio: true },
      ],
      profiles: {
        all: {
          servers: ['one'],
          expose: {
            primitives: 'workspace',
            tools: [
              'one.put',
              'one.fold',
              'one.bind',
              { tool: 'one.put', name: 'save' },
              { tool: 'one.fold', name: 'bend' },
            ],
          },
        },
      },
      rules: [
        {
          id: 'writes-ask',
          outcome: 'ask',
          message: 'Writes need a person.',
          when: { tools: ['one.put', 'workspace.write'] },
        },
        {
          id: 'folding-asks',
          outcome: 'ask',
          message: 'Folding needs a person.',
          approval: 'group',
          when: { tools: ['one.fold', 'one.bind'] },
        },
      ],
    },
  );
  owner = new ApprovalOwner(facade.assembled.config.state);
  session = facade.open('me');
});
afterEach(async () => {
  await owner.close();
  await facade.close();
});

describe.each(Object.entries(EXPOSURES))('a tool that is %s', (exposure, nameOf) => {
  // Each story runs under one exposure, the last one, which calls by both names. Under the others a part of them runs.
  const isLast = exposure === Object.keys(EXPOSURES).at(-1);
  it.each(
    (isLast ? stories : partOf(stories, 2)).map(
      (story) => [story.name + (story.verifies === undefined ? '' : verifies(...story.verifies)), story] as const,
    ),
  )('%s', async (__, story) => {
    for (const [number, step] of story.steps.entries()) await tell(step, nameOf(step, number));
  });
});

describe('the primitive write', () => {
  it.each(stories.filter(({ primitive }) => primitive === true).map((story) => [story.name, story] as const))(
    '%s',
    async (_, story) => {
      for (const step of story.steps) await tell(step, 'write');
    },
  );
});

async function tell(step: Step, name: string): Promise<void> {
  if (step.approve !== undefined) return void (await owner.approve(step.approve));
  if (step.deny !== undefined) return void (await owner.deny(step.deny));
  const before = facade.records().length;
  const calls = facade.calls('one').length;
  const answer = await facade.call(session, name, step.call);
  const { code = '', contains = '', contains2 = '', sent } = step.want ?? {};
  expect(answer.code, answer.text).toBe(code);
  for (const part of [contains, contains2]) expect(answer.text).toContain(part);
  if (name !== 'write')
    expect(
      facade
        .calls('one')
        .slice(calls)
        .map(({ args }) => args),
    ).toEqual(sent === undefined ? [] : [sent]);
  const records = facade
    .records()
    .slice(before)
    .filter(({ type }) => type === 'approval');
  expect(records).toHaveLength(step.audit?.length ?? 0);
  for (const [at, wanted] of (step.audit ?? []).entries()) expect(records[at]).toMatchObject(wanted);
  const own = facade
    .records()
    .slice(before)
    .filter(({ type }) => type !== 'approval' && type !== 'server');
  if (code === '')
    expect(own).toMatchObject([
      { type: 'intent', consent: records[0]?.id },
      { type: 'outcome', consent: records[0]?.id },
    ]);
  else expect(own).toMatchObject([{ type: 'decision', outcome: code === 'DENIED' ? 'deny' : 'ask', code }]);
  // The records have the id of the call, and the use is recorded before the call.
  for (const record of records) expect(record.call).toBe(own[0]?.id);
  if (code === '') expect(records[0]?.seq).toBeLessThan(own[0]?.seq as number);
}
