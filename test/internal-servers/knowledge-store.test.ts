/** Tests the store of documents, memories and facts: it finds words in every script, and only for the caller. */
import { statSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chunksOf, titleOf } from '../../facade/internal-servers/document-chunks.ts';
import { searchExpression, searchTermsOf } from '../../facade/internal-servers/search-terms.ts';
import { verifies } from '../verifies.ts';
import { document, fact, openTestStore, scope, type TestStore } from './sample-store.ts';

let test: TestStore;
beforeEach(() => {
  test = openTestStore();
});
afterEach(() => test.close());

const found = (query: string, limit = 20): readonly string[] =>
  test.store.documents(scope(), query, limit).map(({ body }) => body);

describe('a search', () => {
  it('ranks better matches first, and gives the same answer in the same order again', () => {
    test.keep(document('The harbour opens at nine.'));
    test.keep(document('Deploy the harbour: deploy with the deploy script.'));
    test.keep(document('Nothing of interest.'));
    expect(found('deploy harbour')[0]).toContain('deploy script');
    expect(found('deploy harbour')).toHaveLength(2);
    for (let again = 0; again < 5; again += 1) expect(found('deploy harbour')).toEqual(found('deploy harbour'));
    for (let copy = 0; copy < 8; copy += 1) test.keep(document('equal words', { name: `copy ${copy}` }));
    expect(test.store.documents(scope(), 'equal', 4).map(({ source }) => source)).toEqual([4, 5, 6, 7]);
  });

  it.each([
    ['Searching a library', 'searches libraries', 'stems of English words'],
    ['База знаний', 'знани', 'beginnings in other languages'],
    ['Straße und Café', 'cafe', 'accents'],
    ['ＦＵＬＬ width', 'full', 'width'],
    ['知识库的部署指南', '部署', 'Chinese words of two letters'],
    ['知识库的部署指南', '指', 'a single letter'],
    ['今日は東京に行きます', '東京に行く', 'a Japanese sentence'],
    ['지식 베이스입니다', '베이스', 'Korean with a particle'],
    ['ฐานความรู้ของทีม', 'ความรู้', 'Thai'],
    ['База знаний', 'ЗНАНИЙ', 'Cyrillic case'],
    ['قاعدة المعرفة', 'المعرفة', 'Arabic'],
    ['mixed 部署guide text', 'guide', 'letters next to ideographs'],
  ])('in "%s" for "%s" finds it: %s', (text, query) => {
    test.keep(document(text));
    test.keep(document('something else entirely 别的'));
    expect(found(query)).toEqual([text]);
  });

  it('finds nothing for an empty query', () => {
    test.keep(document('words'));
    for (const query of ['', ' ', '"', '***', '!?', '\u0000', '🙂', '\u200b']) expect(found(query)).toEqual([]);
  });

  it('uses only the first words of a very long query', () => {
    test.keep(document('needle'));
    expect(found(`needle ${'x'.repeat(500)} `.repeat(2000))).toEqual(['needle']);
    expect(searchTermsOf(Array.from({ length: 5000 }, (_, at) => `w${at}`).join(' '))).toHaveLength(32);
  });
});

const INJECTIONS = [
  '"',
  '""',
  'a"b',
  'needle"',
  '" OR ""',
  '" OR body:* OR "',
  'body:secret',
  '{body} : secret',
  '- body : secret',
  'NEAR(needle secret, 2)',
  'NEAR(needle',
  'secret AND needle',
  'needle NOT needle',
  'NOT secret',
  '^secret',
  'sec*',
  '*',
  'secret + needle',
  '(secret',
  'secret)',
  "'; DROP TABLE chunk; --",
  "' OR '1'='1",
  'words MATCH secret',
  'rank',
  'secret\u0000needle',
  '\\"secret',
  'secret" NEAR "needle',
  'a:b:c',
  'needle OR',
  'AND',
  'OR',
  'NOT',
  'NEAR',
  '?1',
  '$x',
  ':x',
  '@x',
] as const;

describe('a search query', () => {
  it.each(INJECTIONS)('%j is read as words only', (query) => {
    test.keep(document('needle in the public text'));
    test.keep(document('the secret of another space', { space: 'other' }));
    test.keep(document('the secret of bob', { user: 'bob' }));
    // Each word is searched as a word: nothing else is found, and nothing is thrown.
    for (const body of found(query)) expect(body).toBe('needle in the public text');
    expect(test.list({})).toHaveLength(3);
  });

  it('can be any text', () => {
    test.keep(document('the secret of bob', { user: 'bob' }));
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (query) => {
        expect(found(query)).toEqual([]);
        expect(searchExpression(searchTermsOf(query))).toMatch(/^(?:"[^"]+"(?: \*)?(?: OR "[^"]+"(?: \*)?)*)?$/u);
      }),
    );
  });
});

describe('the scopes of the store', () => {
  const who = fc.record({
    space: fc.constantFrom('team', 'other', 'alice'),
    user: fc.constantFrom('', 'alice', 'bob', 'team'),
    conversation: fc.constantFrom('', 'talk', 'elsewhere'),
  });
  const rows = fc.array(
    fc.record({
      owner: who,
      kind: fc.constantFrom('document' as const, 'memory' as const, 'fact' as const),
      word: fc.constantFrom('alpha', 'beta', '知识'),
    }),
    { minLength: 1, maxLength: 25 },
  );
  const callers = fc.record({
    space: fc.constantFrom('team', 'other', 'alice'),
    user: fc.constantFrom('alice', 'bob', 'team'),
    conversation: fc.constantFrom('talk', 'elsewhere', 'new'),
    turn: fc.constant('turn'),
  });

  it('never let a question return a row of another user, space or conversation' + verifies('CY-10'), () => {
    fc.assert(
      fc.property(rows, callers, fc.constantFrom('alpha', 'beta', '知识', 'alpha beta 知识'), (all, caller, query) => {
        const own = openTestStore();
        try {
          for (const [at, { owner, kind, word }] of all.entries()) {
            // The text names its owner, so that each found text can be checked.
            const text = `${word} #${at} ${owner.space}/${owner.user}/${kind === 'memory' ? owner.conversation : ''}`;
            if (kind === 'fact') own.setFact(fact(`${word}.${at}`, text, { space: owner.space, user: owner.user }));
            else
              own.keep(
                document(text, {
                  kind,
                  space: owner.space,
                  user: owner.user,
                  conversation: kind === 'memory' ? owner.conversation : '',
                  name: String(at),
                }),
              );
          }
          const place = (text: string): readonly string[] => text.split(' ').at(-1)?.split('/') ?? [];
          for (const { body } of own.store.documents(caller, query, 50)) {
            expect([caller.space]).toContain(place(body)[0]);
            expect(['', caller.user]).toContain(place(body)[1]);
          }
          for (const { body } of own.store.memories(caller, query, 50))
            expect([
              [caller.space, caller.user, ''],
              [caller.space, caller.user, caller.conversation],
            ]).toContainEqual(place(body));
          for (const subject of ['alpha', 'beta', '知识'])
            for (const { value } of own.store.facts(caller, { subject }, 50))
              expect([
                [caller.space, '', ''],
                [caller.space, caller.user, ''],
              ]).toContainEqual(place(value));
          // All texts of the caller are found.
          const mine = all.filter(
            ({ kind, owner, word }) =>
              kind === 'memory' &&
              query.includes(word) &&
              owner.space === caller.space &&
              owner.user === caller.user &&
              ['', caller.conversation].includes(owner.conversation),
          );
          expect(own.store.memories(caller, query, 50)).toHaveLength(mine.length);
        } finally {
          own.close();
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe('facts', () => {
  it("are found by key and by subject, the user's own before those of the space", () => {
    for (const [key, value] of [
      ['team', 'blue'],
      ['team.lead', 'Ada'],
      ['team.lead.mail', 'ada@x'],
      ['teams', 'no'],
      ['100%', 'all'],
    ] as const)
      test.setFact(fact(key, value));
    test.setFact(fact('team.lead', 'Grace', { user: 'alice' }));
    test.setFact(fact('team.lead', 'Linus', { user: 'bob' }));
    const values = (query: Parameters<typeof test.store.facts>[1], limit = 50): readonly string[] =>
      test.store.facts(scope(), query, limit).map(({ value }) => value);
    expect(values({ keys: ['team.lead', 'missing', 'team.lead'] })).toEqual(['Grace', 'Ada']);
    expect(values({ subject: 'team' })).toEqual(['blue', 'Grace', 'Ada', 'ada@x']);
    expect(values({ subject: 'tea' })).toEqual([]);
    expect(values({ subject: '%' })).toEqual([]);
    expect(values({ keys: ['100%'] })).toEqual(['all']);
    expect(values({ subject: 'team' }, 2)).toEqual(['blue', 'Grace']);
    expect(test.store.facts(scope(), { keys: ['team'] }, 1)).toMatchObject([
      { key: 'team', own: false, source: 'owner', at: 0 },
    ]);
  });

  it('are replaced, and not written again if nothing changed', () => {
    expect([
      test.setFact(fact('k', 'v')),
      test.setFact(fact('k', 'v')),
      test.setFact(fact('k', 'w')),
      test.setFact(fact('k', 'w', { labels: ['secret'] })),
    ]).toEqual(['added', 'unchanged', 'replaced', 'replaced']);
  });
});

describe('the knowledge store', () => {
  it('can be read only by the user who owns the folder', () => {
    expect(statSync(path.join(test.folder, 'knowledge.db')).mode & 0o777).toBe(0o600);
  });

  it('stores a document once, and no longer finds what was replaced', () => {
    const keep = (text: string, more = {}): unknown => test.keep(document(text, { name: 'guide', ...more }));
    expect([
      keep('first words'),
      keep('first words'),
      keep('second words'),
      keep('second words', { labels: ['internal'] }),
    ]).toMatchObject([
      { kept: 'added', chunks: 1 },
      { kept: 'unchanged', chunks: 0 },
      { kept: 'replaced', chunks: 1 },
      { kept: 'replaced' },
    ]);
    expect([found('first'), found('second')]).toEqual([[], ['second words']]);
    expect(test.list({})).toMatchObject([
      { kind: 'document', space: 'team', name: 'guide', labels: 'internal', bytes: 12 },
    ]);
    expect([test.forget({ space: 'other' }), test.forget({ name: 'guide' }), found('words')]).toEqual([0, 1, []]);
  });

  it('forgets what is selected, and nothing else', () => {
    test.keep(document('one', { user: 'alice' }));
    test.keep(document('two', { kind: 'memory', user: 'alice', conversation: 'talk' }));
    test.setFact(fact('k', 'v', { user: 'alice' }));
    test.setFact(fact('k', 'v', { user: 'bob' }));
    expect(test.list({ user: 'alice' }).map(({ kind }) => kind)).toEqual(['document', 'fact', 'memory']);
    expect([
      test.forget({ user: 'alice', kind: 'fact' }),
      test.forget({ conversation: 'talk' }),
      test.forget({ user: 'alice' }),
      test.list({}).length,
    ]).toEqual([1, 1, 1, 1]);
  });
});

describe('the passages of a document', () => {
  it('keep whole paragraphs together, and headings with their text', () => {
    const text = `# Guide\n\nFirst.\n\n## Part\n\n${'word '.repeat(300).trim()}\n\nLast.`;
    const chunks = chunksOf(text);
    expect(chunks[0]).toBe('# Guide\n\nFirst.');
    expect(chunks[1]?.startsWith('## Part')).toBe(true);
    expect(chunks.every((chunk) => chunk.length <= 1200)).toBe(true);
    expect([
      titleOf(text, 'guide.md'),
      titleOf('no heading', 'guide.md'),
      titleOf(`# ${'x'.repeat(500)}`, '').length,
    ]).toEqual(['Guide', 'guide.md', 200]);
    expect(chunksOf(' \n\n \r\n')).toEqual([]);
  });

  it('contain every character, and divide none', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'grapheme', maxLength: 900 }), { maxLength: 6 }), (parts) => {
        const text = parts.join('\n\n').repeat(3);
        const chunks = chunksOf(text);
        const bare = (value: string): string => value.replace(/\s+/gu, '');
        expect(bare(chunks.join(''))).toBe(bare(text));
        for (const chunk of chunks)
          expect(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(chunk)).toBe(false);
      }),
    );
  });
});
