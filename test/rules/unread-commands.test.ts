/** Tests what is said of a rule on commands that matched only because the command could not be read. */
import { afterEach, describe, expect, it } from 'vitest';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const NOTE = /It matched only because parts of this command cannot be read: it .*\. Write literal words\./;
let facade: TestFacade | undefined;
afterEach(() => facade?.close());

describe('a rule on commands that matched a command without known words', () => {
  it.each([
    ['deny', { commands: ['git push'] }],
    ['ask', { commands: ['git push'] }],
    ['ask', { exceptCommands: ['ls'] }],
  ])('says so: %s %j', async (outcome, when) => {
    const policy = await policyOf([
      { id: 'all', outcome: 'allow', when: {} },
      { id: 'it', outcome, when, message: 'Ask first.' },
    ]);
    const bash = { server: 'workspace', tool: 'bash', verb: 'execute' as const };
    // The kept decision on the first call is that of the second, but only the second could not be read.
    const read = await policy.call(callOf({ ...bash, commands: [['git', 'push']], starts: true }));
    expect(read.reasons).toEqual([expect.objectContaining({ id: 'it', message: 'Ask first.' })]);
    const unread = await policy.call(callOf({ ...bash, commands: 'opaque' }));
    expect(unread).toMatchObject({ outcome, reasons: [{ id: 'it', unread: true }] });
    expect(unread.reasons[0]?.message).toMatch(NOTE);
    const again = await policy.call(callOf({ ...bash, commands: [['git', 'push']], starts: true }));
    expect(again.reasons[0]).not.toHaveProperty('unread');
  });

  it('says only why if the rule reads only whether the command can be read', async () => {
    const policy = await policyOf([{ id: 'it', outcome: 'deny', when: { opaque: true }, message: 'No.' }]);
    const { reasons } = await policy.call(callOf({ verb: 'execute', commands: 'opaque' }));
    expect(reasons[0]?.message).toMatch(/^No\. This command is not plain: it /);
    expect(reasons[0]).not.toHaveProperty('unread');
  });

  it.each([
    ['echo x > a', 'it redirects to or from a file. Use the tools write and edit to change files.'],
    ['wc < a', 'it redirects to or from a file. Use the tools write and edit to change files.'],
    ['echo $HOME', /^it has a variable, .*\. Write literal words\.$/],
    ['ls *.ts', /^it has .* a glob, .*\. Write literal words\.$/],
    ['A=1 ls', /^it has an assignment, .*\. Write literal words\.$/],
    ['ls "', 'it has a syntax error. Write literal words.'],
    ['ls && env X=1 ls', 'env runs its words or its input as code. Call the program itself.'],
    ['ls && git config user.name x', 'git config starts other programs, or may do so.'],
    ['/opt/bin/tool a', '/opt/bin/tool starts other programs, or may do so.'],
  ])('names what makes %s opaque', async (text, why) => {
    const policy = await policyOf([{ id: 'it', outcome: 'ask', when: { opaque: true }, message: 'Ask.' }]);
    const call = callOf({ server: 'workspace', tool: 'bash', verb: 'execute' });
    const { reasons } = await policy.call({ ...call, effect: { ...call.effect, command: commandFact(text) } });
    const said = reasons[0]?.message.replace('Ask. This command is not plain: ', '');
    expect(said).toEqual(typeof why === 'string' ? why : expect.stringMatching(why));
  });

  it(`tells the agent and the record${verifies('FH-44')}`, async () => {
    facade = await startFacade(
      `version: 1
rules:
  - {id: all, outcome: allow, when: {}}
  - {id: no-push, outcome: deny, when: {commands: [git push]}, message: A person pushes.}
`,
      { folder: temporaryFolder() },
    );
    const { text } = await facade.call(facade.open('local'), 'bash', { command: 'echo $HOME' });
    expect(text).toMatch(NOTE);
    expect(facade.callRecords().at(-1)).toMatchObject({ reasons: [{ id: 'no-push', unread: true }] });
  });
});
