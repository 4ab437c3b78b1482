/**
 * Tests the `openai` schema profile through the facade: the server gets what strict mode sends, with its original
 * meaning.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { profileViolations } from '../../catalogs/projection/profile-violations.ts';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

describe('schemaProfile: openai' + verifies('CY-14', 'ST-94'), () => {
  let facade: RawFacade;
  afterEach(() => facade.close());

  it('shows every tool and primitive in the strict form, and accepts null for an omitted argument', async () => {
    const inputSchema = {
      type: 'object',
      required: ['title'],
      properties: {
        title: { type: 'string' },
        state: { type: 'string', enum: ['on', 'off'] },
        more: { type: 'object', properties: { at: { type: 'string' } } },
        map: { type: 'object' },
      },
    };
    facade = await startRaw(
      { one: { tools: [tool('post', { inputSchema })] } },
      {
        schemaProfile: 'openai',
        profiles: { all: { servers: ['one'], expose: { primitives: 'workspace', tools: ['one.*'] } } },
        rules: [{ id: 'all', outcome: 'allow', when: { verbs: ['read', 'write', 'destructive', 'execute'] } }],
      },
    );
    mkdirSync(path.join(facade.folder, 'workspace'), { recursive: true });
    writeFileSync(path.join(facade.folder, 'workspace', 'a.txt'), 'hello\n');
    const session = facade.open('me');
    const tools = await facade.list(session);
    expect(tools.map(({ name }) => name).sort()).toEqual(['bash', 'edit', 'one_post', 'read', 'write']);
    const profile = loadSchemaProfile('openai');
    for (const { name, inputSchema: schema } of tools as readonly {
      name: string;
      inputSchema: Record<string, unknown>;
    }[])
      expect([name, profileViolations(schema, profile)]).toEqual([name, []]);
    const { code, text } = await facade.call(session, 'one_post', {
      title: 'x',
      state: null,
      more: { at: null },
      map: '{"k":[1]}',
    });
    expect([code, text.includes('[tollgate:')]).toEqual(['', false]);
    expect(JSON.parse(facade.calls('one')[0]?.args ?? '')).toEqual({ title: 'x', more: {}, map: { k: [1] } });
    const names = Object.keys(
      (tools.find(({ name }) => name === 'read') as unknown as { inputSchema: { properties: object } }).inputSchema
        .properties,
    );
    const read = await facade.call(
      session,
      'read',
      Object.fromEntries(names.map((name) => [name, name === 'path' ? 'a.txt' : null])),
    );
    expect([read.code, read.text.includes('hello'), read.text.includes('[tollgate:')]).toEqual(['', true, false]);
  });

  it('shows read_spill in the same form', async () => {
    facade = await startRaw(
      {
        one: {
          tools: [tool('long')],
          answers: { long: { raw: JSON.stringify({ content: [{ type: 'text', text: 'line\n'.repeat(3_000) }] }) } },
        },
      },
      { schemaProfile: 'openai' },
    );
    const session = facade.open('me');
    await facade.list(session);
    const handle = /spill:\/\/[0-9a-f]{32}/.exec((await facade.call(session, 'one_long', {})).text)?.[0] ?? '';
    const reader = (await facade.list(session)).find(({ name }) => name === 'read_spill') as unknown as {
      inputSchema: Record<string, unknown>;
    };
    expect(profileViolations(reader.inputSchema, loadSchemaProfile('openai'))).toEqual([]);
    const more = await facade.call(session, 'read_spill', {
      path: handle,
      action: null,
      offset: 2_500,
      limit: 2,
      pattern: null,
      ignore_case: null,
    });
    expect([more.code, more.text.includes('line')]).toEqual(['', true]);
  });
});
