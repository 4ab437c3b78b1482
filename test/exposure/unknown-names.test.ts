/** Tests what a caller learns who calls a tool by a name that its list does not have. */
import { afterEach, describe, expect, it } from 'vitest';
import { allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';

let facade: RawFacade;
afterEach(() => facade.close());

describe('a call of an unknown name', () => {
  it("suggests a similar name of the caller's own list, and never a hidden one", async () => {
    facade = await startRaw(
      { git: { tools: [tool('list_branches'), tool('delete_branch')] } },
      { rules: [allow('git'), { id: 'no', outcome: 'deny', when: { tools: ['git.delete_branch'] }, message: 'No.' }] },
    );
    const me = facade.open('me');
    const nextOf = async (name: string): Promise<unknown> => {
      const { error } = await facade.call(me, name, {});
      expect(error).toMatchObject({ code: -32602, data: { code: 'UNKNOWN_TOOL' } });
      return (error?.data as { next?: unknown }).next;
    };
    const plain = await nextOf('nothing_like_it');
    expect(plain).toBe('Call tools/list and use a name from it.');
    expect(await nextOf('git_listBranch')).toBe(`Did you mean git_list_branches? ${plain}`);
    // The hidden tool, its id, and a wrong spelling of it get the answer of a name that does not exist.
    for (const name of ['git_delete_branch', 'git.delete_branch', 'git_delete_brunch'])
      expect(await nextOf(name)).toBe(plain);
  });

  it('says that an owner must approve the server of this name, to a caller who may reach it', async () => {
    facade = await startRaw(
      { one: { tools: [tool('put')] }, git: { tools: [tool('status')] } },
      {
        principals: [
          { id: 'me', profiles: ['all'], stdio: true },
          { id: 'guest', profiles: ['few'], stdio: true },
        ],
        profiles: {
          all: { servers: ['one', 'git'], expose: { primitives: {}, tools: ['one.*', 'git.*'] } },
          few: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'] } },
        },
        rules: [allow('one', 'git')],
      },
      {},
      { approved: ['one'] },
    );
    const unapproved = await facade.call(facade.open('me'), 'git_status', {});
    expect(unapproved).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      result: { _meta: { 'tollgate/retryable': false } },
    });
    expect(unapproved.text).toContain('`tollgate approve git`');
    expect((await facade.call(facade.open('guest'), 'git_status', {})).code).toBe('UNKNOWN_TOOL');

    // Its start is approved, but not its tools.
    const { consents, config } = facade.assembled;
    const settings = config.servers.get('git');
    if (settings === undefined) throw new Error('there is no server git');
    await consents.approveStart({ facts: await consents.factsOf(settings), by: 'olga', at: new Date().toISOString() });
    const waiting = await facade.call(facade.open('me'), 'git_status', {});
    expect(waiting.code).toBe('SERVER_UNAVAILABLE');
    expect(waiting.text).toMatch(/no one has approved its tools.*\n.*`tollgate approve git`/);
  });
});
