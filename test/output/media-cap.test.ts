/** Tests the limit of media through the facade, for all profiles and for one. */
import { afterEach, describe, expect, it } from 'vitest';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

describe('caps.media' + verifies('ST-95', 'HA-23'), () => {
  let facade: RawFacade;
  afterEach(() => facade.close());

  it('counts for all profiles, and a profile can raise it', async () => {
    const picture = { type: 'image', mimeType: 'image/png', data: 'A'.repeat(4_000) };
    facade = await startRaw(
      { one: { tools: [tool('draw')], answers: { draw: { raw: JSON.stringify({ content: [picture] }) } } } },
      {
        caps: { media: 2_999 },
        principals: [
          { id: 'me', profiles: ['all'], stdio: true },
          { id: 'painter', profiles: ['all', 'pictures'], stdio: true },
        ],
        profiles: {
          all: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'] } },
          pictures: { servers: ['one'], caps: { media: 3_000 } },
        },
      },
    );
    const kindsFor = async (principal: string): Promise<readonly string[]> => {
      const session = facade.open(principal);
      await facade.list(session);
      return ((await facade.call(session, 'one_draw', {})).result?.content ?? []).map(({ type }) => type);
    };
    expect([await kindsFor('me'), await kindsFor('painter')]).toEqual([['text'], ['image']]);
    // The record has its size and none of its content.
    const outcomes = facade.records().filter(({ type }) => type === 'outcome');
    expect(outcomes.map(({ sizes }) => (sizes as { raw: number }).raw > 4_000)).toEqual([true, true]);
    expect(JSON.stringify(facade.records())).not.toContain('AAAA');
  });
});
