/** Tests `propose_server`: what an agent may propose, what it changes, and how an owner sees and decides it. */

import { readdirSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAX_OPEN, propose } from '../../facade/internal-servers/connection-proposals.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { type Answer, cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let facade: TestFacade | undefined;
beforeEach(() => {
  project = new Project();
});
afterEach(async () => {
  await facade?.close();
  facade = undefined;
  project.remove();
});

const yaml = ({ servers = '', outcome = 'allow', isShown = true } = {}): string => `version: 1
workspace: ./workspace
state: ./state
servers: {${servers}}
principals:
  - {id: alice, stdio: true}
  - {id: bob, stdio: true}
  - {id: boss, stdio: true, owner: true}
profiles: {default: ${isShown ? '{servers: [tollgate], expose: {tools: [tollgate.propose_server]}}' : '{}'}}
rules: [{id: proposing, outcome: ${outcome}, when: {tools: [tollgate.propose_server]}}]
`;
const start = async (options: Parameters<typeof yaml>[0] = {}): Promise<TestFacade> => {
  facade = await startFacade(yaml(options), { folder: project.folder });
  return facade;
};
const WIKI = 'https://wiki.example/mcp';
const ask = (service: string, { as = 'alice', reason = 'To read tickets.' } = {}): Promise<Answer & { text: string }> =>
  (facade as TestFacade).call((facade as TestFacade).open(as), 'tollgate_propose_server', { service, reason }) as never;
const owner = (...words: readonly string[]): Promise<Answer> => cli(project, [...words, '--as', 'boss']);
const idOf = async (service: string): Promise<string> => {
  const { proposals } = dataOf((await owner('approvals', 'list', '--json')).out) as {
    proposals: { id: string; service: string }[];
  };
  return proposals.find((one) => one.service === service)?.id ?? '';
};

describe('a proposal of an agent' + verifies('PF-17'), () => {
  inFull('stores a text for the owner, and changes nothing else' + verifies('FH-54'), async () => {
    await start();
    const before = readdirSync(project.folder).sort();
    expect((await ask('github')).text).toContain('nothing was installed, contacted or changed');
    expect((await ask('github')).text).toContain('waits already');
    expect((await ask(WIKI)).code).toBe('');
    expect(readdirSync(project.folder).sort()).toEqual(before);
    const { out } = await owner('approvals', 'list');
    expect(out).toMatch(/Proposal p-[0-9a-f]{8}: an agent of alice/);
    expect(out).toContain('tollgate connect github\n');
    expect(out).toContain(`tollgate connect ${WIKI}\n`);
    const records = (facade as TestFacade).records();
    expect(records.filter(({ event }) => event === 'service-proposed')).toMatchObject([
      { type: 'approval', outcome: 'ask', server: 'github', principal: { id: 'alice' } },
      { server: 'wiki.example' },
    ]);
    expect(JSON.stringify(records)).not.toMatch(/read tickets|\/mcp"/);
  });

  it('is shown as text of the agent: escaped, with secrets redacted' + verifies('FH-54'), async () => {
    await start({
      servers: `one: {command: node, args: [x.js], env: {API_TOKEN: "\${env:TOKEN_OF_ONE:-hunter22-hunter22}"}}`,
    });
    await ask('github', { reason: 'ok\n\u001b[2J\u202eapproved by boss, hunter22-hunter22' });
    const { out } = await owner('approvals', 'list');
    expect(out).toMatch(/the agent wrote {2}"ok\\n/);
    expect(out).not.toMatch(/[\u001b\u202e]|hunter22/);
    expect(out).toContain('No one has checked this text or the service.');
  });

  it('names a known service or an address that a shell reads as one word' + verifies('FH-55'), async () => {
    await start();
    const refused = [
      'no-such-service',
      'github; rm -rf x',
      '--yes',
      '$(id)',
      'http://wiki.example',
      'https://user:pass@wiki.example',
      'https://wiki.example/?token=1',
      'https://wiki.example/a b',
      "https://wiki.example/'",
      `https://wiki.example/${'a'.repeat(200)}`,
    ];
    for (const service of refused) expect([service, (await ask(service)).code]).toEqual([service, 'ARGS_INVALID']);
    expect((await ask('github', { reason: '' })).code).toBe('ARGS_INVALID');
    expect((await ask('github', { reason: 'x'.repeat(501) })).code).toBe('ARGS_INVALID');
    expect((await owner('approvals', 'list')).err).toContain('Nothing waits for approval.');
  });

  it('is refused above three per principal, also if several processes ask at once' + verifies('FH-55'), async () => {
    await start();
    for (const service of ['github', 'notion', WIKI]) expect((await ask(service)).code).toBe('');
    expect((await ask('asana')).code).toBe('BUDGET_EXCEEDED');
    expect((await ask('asana', { as: 'bob' })).code).toBe('');
    const states = [openState(`${project.folder}/state`), openState(`${project.folder}/state`)];
    const principal = { id: 'carl', role: 'user', profiles: ['default'], origin: 'x' };
    const all = await Promise.allSettled(
      Array.from({ length: 8 }, (_, at) =>
        propose(states[at % 2] as never, { principal, service: `s${at}`, reason: 'x', since: at }, () => false),
      ),
    );
    await Promise.all(states.map((state) => state.close()));
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(MAX_OPEN);
  });

  it('ends when it is declined, with the reason for the agent, or connected' + verifies('FH-55'), async () => {
    await start();
    await ask('github');
    await ask(WIKI);
    const id = await idOf('github');
    const approved = await owner('approvals', 'approve', id, '--yes', '0'.repeat(12));
    expect([approved.code, approved.err]).toEqual([2, expect.stringContaining('Run `tollgate connect github`')]);
    expect((await owner('approvals', 'show', id)).out).toContain('tollgate connect github');
    expect((await cli(project, ['approvals', 'deny', id, '--as', 'alice'])).code).toBe(4);
    expect((await owner('approvals', 'deny', id, '--reason', 'Use the tracker.')).code).toBe(0);
    expect(await idOf('github')).toBe('');
    expect((await ask('github')).text).toContain('A person has declined github: "Use the tracker."');
    expect((await ask('github', { as: 'bob' })).text).toContain('is stored');
    expect((facade as TestFacade).records().filter(({ event }) => event === 'proposal-declined')).toMatchObject([
      { id, by: 'boss', outcome: 'deny', principal: { id: 'alice' }, server: 'github' },
    ]);
    project.write('tollgate.yaml', yaml({ servers: `wiki: {url: "${WIKI}/"}` }));
    expect(await idOf(WIKI)).toBe('');
  });

  it('is off until a profile lists it, and decided like every call', async () => {
    const shown = await start({ isShown: false });
    expect((await shown.list(shown.open('alice'))).map(({ name }) => name)).not.toContain('tollgate_propose_server');
    await shown.close();
    const denied = await start({ outcome: 'deny' });
    expect((await denied.list(denied.open('alice'))).map(({ name }) => name)).not.toContain('tollgate_propose_server');
    expect((await ask('github')).code).toBe('UNKNOWN_TOOL');
  });
});
