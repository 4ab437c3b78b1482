/** Tests that the record of every refused call whose name belongs to a server names this server. */
import { afterEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { server } from '../cli/terminal.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
approvals: {waitMs: 0}
principals: [{id: alice, stdio: true, owner: true}]
servers:
  off: ${server(['chaos.mjs', 'ok'])}
  broken: ${server(['chaos.mjs', 'crash-at-start'])}
  gone: {command: /missing/program, isolation: direct}
  notes: ${server(['chaos.mjs', 'ok'])}
  notes-old: ${server(['chaos.mjs', 'ok'])}
profiles:
  default:
    servers: [off, broken, gone, notes, notes-old]
    budgets: [{id: few, scope: session, calls: 2}]
    expose: {tools: ["off.*", "broken.*", "gone.*", "notes.*", "notes-old.*", {tool: notes.env, name: surroundings}]}
rules:
  - {id: all, outcome: allow, when: {}}
  - {id: no-echo, outcome: deny, message: no, when: {tools: [notes.raw]}}
  - {id: hide, outcome: deny, message: no, when: {tools: [notes.env]}}
  - {id: no-x, outcome: deny, message: no, when: {tools: [notes.echo], args: {x: {equals: 1}}}}
`;

let facade: TestFacade | undefined;
afterEach(() => facade?.close());

describe('the record of a refused call', () => {
  it('names the server, whatever refused it' + verifies('AD-112'), async () => {
    const opened = await startFacade(CONFIG, { approved: ['broken', 'gone', 'notes', 'notes-old'] });
    facade = opened;
    const session = opened.open('alice');
    const asked = [
      ['off_echo', {}, 'off'],
      ['broken_echo', {}, 'broken'],
      ['gone_echo', {}, 'gone'],
      ['notes_nothing', {}, 'notes'],
      ['notes-old_nothing', {}, 'notes-old'],
      ['notes_echo', 'no object', 'notes'],
      ['notes_echo', { x: 1 }, 'notes'],
      ['notes_raw', {}, 'notes'],
      ['surroundings', {}, 'notes'],
      ...Array.from({ length: 3 }, () => ['notes_big', {}, 'notes'] as const),
    ] as const;
    for (const [name, args] of asked) await opened.call(session, name, args);
    const state = openState(opened.assembled.config.state);
    new KillSwitch(state).throw({ since: new Date().toISOString(), by: 'test' });
    await state.close();
    for (const [name] of asked) await opened.call(session, name, {});
    const refused = opened.callRecords().filter(({ type, outcome }) => type !== 'intent' && outcome !== 'allow');
    const servers = new Map<string, string>(asked.map(([name, , of]) => [name, of]));
    expect(refused.map(({ exposed, code, server: of }) => [exposed, code, of])).toEqual(
      refused.map(({ exposed, code }) => [exposed, code, servers.get(String(exposed))]),
    );
    expect(new Set(refused.map(({ code }) => code))).toEqual(
      new Set(['SERVER_UNAVAILABLE', 'UNKNOWN_TOOL', 'ARGS_INVALID', 'DENIED', 'BUDGET_EXCEEDED', 'SWITCHED_OFF']),
    );
  });
});
