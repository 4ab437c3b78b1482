/** Tests gateways that are killed under load: no record is lost, no call runs twice, and no budget is exceeded. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { numbers, TIMES } from './fault-seed.ts';
import { callOnce, codeOf, decisionOf, type Gateway, Ground, Load, SERVERS, type Sent } from './gateway-load.ts';

const KILLS = roundsOf(6, 2) * TIMES;
/** Maximum milliseconds between two kills. */
const PAUSE_MS = 900;
/** Small enough to be used up before the end of the test. */
const FEW = 150;
/** What a killed gateway may have reserved ahead: 1/64 of what is left, and 256 calls at most. */
const AHEAD = { many: 256, few: Math.floor(FEW / 64) };
const BUDGETS = `budgets:
  - {id: many, scope: principal, calls: 10000000}
  - {id: few, scope: principal, calls: ${FEW}, when: {server: b, tool: echo}}
`;

interface Intent {
  readonly id: string;
  readonly correlation: string;
  readonly server: string;
  readonly tool: string;
}

let ground: Ground;
beforeEach(async () => {
  ground = new Ground({ more: BUDGETS });
  await ground.project.approve();
});
afterEach(() => ground.remove());

/** Returns the intents of the log, and the ids of the calls whose end is recorded. */
function records(): { readonly intents: readonly Intent[]; readonly ended: ReadonlySet<string> } {
  const reader = openAuditReader(path.join(ground.state, 'audit'), ':memory:');
  const ofType = (type: string): Intent[] => [...reader.all({ type })].map(({ record }) => record as unknown as Intent);
  const found = {
    intents: ofType('intent'),
    ended: new Set(['outcome', 'budget', 'decision'].flatMap(ofType).map(({ id }) => id)),
  };
  reader.close();
  return found;
}

/** Returns what all processes together have reserved of a budget. */
function reserved(budget: string): number {
  const database = ground.openState();
  const { calls } = database.prepare('SELECT sum(calls) AS calls FROM counter WHERE budget = ?').get(budget) as {
    calls: number;
  };
  database.close();
  return calls;
}

/** Uses up the rest of the small budget, one call after the other. */
async function spend(gateway: Gateway): Promise<void> {
  for (let n = 0; n <= FEW; n += 1) {
    const code = codeOf(await callOnce(gateway, { tool: 'b_echo', token: `spend-${n}` }));
    if (code === 'BUDGET_EXCEEDED') return;
    expect(code).toBe('ok');
  }
  throw new Error('the budget was not used up');
}

function checkCalls(sent: readonly Sent[], { intents, ended }: ReturnType<typeof records>): void {
  const ran = SERVERS.flatMap((name) => ground.ran(name));
  expect(ran.length).toBe(new Set(ran).size);
  const intended = new Map(intents.map((one) => [one.correlation, one]));
  expect(intended.size).toBe(intents.length);
  expect(ran.filter((token) => !intended.has(token))).toEqual([]);
  const answered = sent.filter(({ reply }) => reply !== undefined);
  expect(
    answered
      .filter(({ reply }) => reply !== undefined && !ended.has(decisionOf(reply) ?? ''))
      .map(({ token, reply }) => [token, reply]),
  ).toEqual([]);
  const ranSet = new Set(ran);
  expect(
    answered.filter(({ token, reply }) => codeOf(reply) === 'ok' && !ranSet.has(token)).map(({ token }) => token),
  ).toEqual([]);
  expect(
    [...new Set(answered.map(({ reply }) => codeOf(reply)))].filter(
      (code) => !['ok', 'BUDGET_EXCEEDED'].includes(code),
    ),
  ).toEqual([]);
}

describe('gateways that are killed under load', () => {
  it(
    `keep every record, run no call twice, and lose of a budget at most what they reserved ahead, over ${KILLS} kills` +
      verifies('ST-10', 'FP-12'),
    async () => {
      const chance = numbers();
      const gateways = await Promise.all([ground.gateway(), ground.gateway()]);
      const load = new Load(gateways, { chance, pauseMs: roundsOf(0, 15) });
      const restarts: Promise<void>[] = [];
      for (let kill = 0; kill < KILLS; kill += 1) {
        await sleep(chance() * PAUSE_MS);
        const gateway = gateways[kill % 2] as Gateway;
        // A gateway is killed again only after it has started. The other may be killed in between.
        await restarts[kill - 2];
        restarts.push(gateway.restart());
      }
      await Promise.all(restarts);
      await load.end();
      // After a second the other gateway has given back what it had reserved ahead.
      await sleep(1_500);
      await spend(gateways[0]);
      await Promise.all(gateways.map((gateway) => gateway.end()));
      const found = records();
      checkCalls(load.sent, found);
      // A call that was killed between its reservation and its intent counts, but did not run.
      const lost = load.sent.filter(
        ({ token, reply }) => reply === undefined && !found.intents.some(({ correlation }) => correlation === token),
      );
      const few = found.intents.filter(({ server, tool }) => server === 'b' && tool === 'echo').length;
      expect(reserved('few')).toBe(FEW);
      expect(few).toBeLessThanOrEqual(FEW);
      expect(FEW - few).toBeLessThanOrEqual(lost.length + KILLS * AHEAD.few);
      expect(reserved('many')).toBeGreaterThanOrEqual(found.intents.length);
      expect(reserved('many') - found.intents.length).toBeLessThanOrEqual(lost.length + KILLS * AHEAD.many);
      expect(load.sent.filter(({ reply }) => reply === undefined).length).toBeGreaterThan(0);
      expect(load.sent.length).toBeGreaterThan(KILLS);
      await expect.poll(() => ground.running()).toEqual([]);
      expect(dataOf((await cli(ground.project, ['audit', 'verify', '--json'])).out)).toMatchObject({
        ok: true,
        faults: [],
      });
    },
    60_000 + KILLS * 10_000,
  );
});
