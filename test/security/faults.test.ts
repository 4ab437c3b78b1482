/** Tests that parts F and G of the fault and attack matrix are tested by name, as docs/threat-model.md says, and the row that belongs to no other file. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openEgress } from '../../adapters/egress/open.ts';
import { codeIn, ROOT, rowsOf, sectionOf } from '../docs/markdown.ts';

describe('a sandbox with a way out', () => {
  it('leaves a server no word about its proxy but where it is: no password, no command line, no folder of the host', async () => {
    const egress = await openEgress({ server: 'tracker', allowedDomains: ['api.example.org'] }, { onBlocked: () => undefined });
    const text = JSON.stringify(egress.env);
    await egress.close();
    for (const value of Object.values(egress.env).filter((one) => one.startsWith('http'))) expect(value).toBe('http://127.0.0.1:3128');
    expect(text).not.toContain('@');
    expect(text).not.toContain(path.dirname(egress.socket));
    expect(text).not.toMatch(/tracker|api\.example\.org/);
    expect(existsSync(egress.socket)).toBe(false);
  });
});

describe('faults of docs/threat-model.md', () => {
  const rows = rowsOf(sectionOf('docs/threat-model.md', '## Faults under test')).filter(([row]) => /^\d+$/.test(row ?? ''));

  it('are all of parts F and G, each once', () => {
    expect(rows.map(([row]) => Number(row))).toEqual(Array.from({ length: 39 }, (_, index) => 75 + index));
  });

  it.each(rows.map(([row = '', , test = '', file = '', note = '']) => [row, codeIn(test)[0], codeIn(file)[0], note] as const))('row %s stands under its name, or says why it does not', (_row, test, file, note) => {
    if (test === undefined || file === undefined) return expect(note).toMatch(/^not here: .{20}/);
    return expect(readFileSync(path.join(ROOT, file), 'utf8')).toContain(test);
  });
});
