/** Tests random histories of two facades on one state folder whose master switch is thrown from outside: while it is off, no call reaches a server. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/servers/kill-switch.ts';
import { openState } from '../../facade/state/sqlite.ts';
import { server } from '../cli/terminal.ts';
import { startFacade, type Answer } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

type Act = { readonly act: 'on' | 'off' } | { readonly act: 'call' | 'list'; readonly at: 0 | 1; readonly waits: boolean };

const acts: fc.Arbitrary<Act> = fc.oneof(
  { weight: 1, arbitrary: fc.constantFrom<Act>({ act: 'on' }, { act: 'off' }) },
  { weight: 3, arbitrary: fc.record({ act: fc.constantFrom('call' as const, 'list' as const), at: fc.constantFrom(0 as const, 1 as const), waits: fc.boolean() }) },
);

/** Where a call or list began: `off` when the switch was off from its beginning on and until its end. */
interface Made {
  readonly token: string;
  readonly wasOff: boolean;
  readonly answer: Promise<Answer>;
}

describe('histories of the master switch over two facades', () => {
  it('no call that begins while it is off reaches a server, no list shows anything, and all goes on when it is on' + verifies('HA-19'), async () => {
    await fc.assert(fc.asyncProperty(fc.array(acts, { minLength: 8, maxLength: 24 }), async (history) => {
      const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-switch-'));
      const log = path.join(folder, 'log');
      const config = `version: 1
workspace: ./workspace
state: ./state
servers: {one: ${server(['chaos.mjs', 'ok'], `env: {CHAOS_LOG: ${log}}, maxRetries: 50`)}}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [one], expose: {primitives: workspace, tools: ["one.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`;
      const facades = [await startFacade(config, { folder }), await startFacade(config, { folder })] as const;
      const other = openState(path.join(folder, 'state'));
      try {
        const killSwitch = new KillSwitch(other);
        const sessions = [facades[0].open('alice'), facades[1].open('alice')] as const;
        const made: Made[] = [];
        let off = false;
        // What runs when the switch turns is judged by neither side of it.
        const settle = async (): Promise<unknown> => Promise.allSettled(made.map(({ answer }) => answer));
        for (const one of history) {
          if ('at' in one) {
            if (one.act === 'list') {
              const tools = await facades[one.at].list(sessions[one.at]);
              expect(tools.length === 0).toBe(off);
              continue;
            }
            const token = `t${made.length}`;
            const answer = facades[one.at].call(sessions[one.at], 'one_echo', { token });
            made.push({ token, wasOff: off, answer });
            if (one.waits) await answer;
          } else {
            await settle();
            off = one.act === 'off';
            if (off) await killSwitch.throw({ since: '', by: '' });
            else await killSwitch.turnOn();
          }
        }
        await settle();
        const reached = existsSync(log) ? readFileSync(log, 'utf8').trimEnd().split('\n') : [];
        for (const { token, wasOff, answer } of made) {
          const { code } = await answer;
          if (wasOff) expect([token, code]).toEqual([token, 'SWITCHED_OFF']);
          else expect(['', 'TOOL_CRASHED', 'SERVER_UNAVAILABLE']).toContain(code);
          if (wasOff) expect(reached).not.toContain(token);
          else if (code === '') expect(reached).toContain(token);
        }
      } finally {
        await Promise.all(facades.map((facade) => facade.close()));
        await other.close();
        rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
      }
    }), { numRuns: Number(process.env['TOLLGATE_HISTORIES'] ?? 6), endOnFailure: true });
  });
});
