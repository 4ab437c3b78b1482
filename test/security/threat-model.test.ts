/**
 * Tests that each threat, risk and fault of docs/threat-model.md names an existing test, and the rows that no other
 * file tests.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { stringify as toToml } from 'smol-toml';
import { describe, expect, it } from 'vitest';
import { stringify as toYaml } from 'yaml';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import { readServerToml } from '../../facade/cli/connect/server-toml.ts';
import { withProject } from '../config/project.ts';
import { codeIn, proseOf, ROOT, rowsOf, sectionOf } from '../docs/markdown.ts';
import { verifies } from '../verifies.ts';

const PAGE = 'docs/threat-model.md';
const PROOF = /`([^`]+)`\s+in\s+`(test\/[^`\s]+)`/g;

/** Returns the proofs in a text, written as `name` in `file`. A name may continue on the next line. */
function proofsIn(text: string): readonly (readonly [name: string, file: string])[] {
  return [...text.matchAll(PROOF)].map(([, name = '', file = '']) => [name.replace(/\s+/g, ' '), file] as const);
}

const exists = (name: string, file: string): boolean =>
  existsSync(path.join(ROOT, file)) && readFileSync(path.join(ROOT, file), 'utf8').includes(name);

describe('the environment of a sandbox with a network', () => {
  it('tells a server only the address of its proxy: no password, no command line, no folder of the host', async () => {
    const egress = await openEgress(
      { server: 'tracker', allowedDomains: ['api.example.org'] },
      { onBlocked: () => undefined },
    );
    const text = JSON.stringify(egress.env);
    await egress.close();
    for (const value of Object.values(egress.env).filter((one) => one.startsWith('http')))
      expect(value).toBe('http://127.0.0.1:3128');
    expect(text).not.toContain('@');
    expect(text).not.toContain(path.dirname(egress.socket));
    expect(text).not.toMatch(/tracker|api\.example\.org/);
    expect(existsSync(egress.socket)).toBe(false);
  });
});

describe('the TOML file of a server', () => {
  const words = fc.oneof(
    fc.string(),
    fc.constantFrom(
      '--eval evil()',
      '"; rm -rf ~',
      '${HOME}',
      '${secret:other}',
      'x\ncommand: evil\nargs: [-c]',
      'x\u001b]0;y\u0007',
      '{{command}}',
      '$(evil)',
    ),
  );

  it('never turns its texts into program, arguments or variables', () => {
    let loaded = 0;
    fc.assert(
      fc.property(words, fc.oneof(fc.constant('internal'), words), (description, label) =>
        withProject((project) => {
          const load = (said: Readonly<Record<string, string>>): unknown => {
            const read = readServerToml(
              toToml({
                name: 'one',
                ...said,
                server: { command: 'node', args: ['server.mjs'] },
                auth: { KEY: 'vault:one' },
              }),
            );
            project.write('servers/one.yaml', toYaml(read.ok ? read.entry : expect.fail()));
            const server = project.load('version: 1\n', { HOME: '/home/somebody' }).config?.servers.get('one');
            return server && { ...server, description: '', labels: [] };
          };
          const [plain, other] = [load({}), load({ description, label })];
          expect(plain).toMatchObject({ command: 'node', args: ['server.mjs'], env: { KEY: '${secret:one}' } });
          if (other === undefined) return;
          loaded += 1;
          expect(other).toEqual(plain);
        }),
      ),
      { numRuns: 60 },
    );
    expect(loaded).toBeGreaterThan(10);
  });
});

describe('faults of docs/threat-model.md', () => {
  const rows = rowsOf(sectionOf(PAGE, '## Faults under test')).filter(([row]) => /^\d+$/.test(row ?? ''));

  it('are all of parts A, E, F and G, each once', () => {
    const from = (first: number, last: number): readonly number[] =>
      Array.from({ length: last - first + 1 }, (_, index) => first + index);
    expect(rows.map(([row]) => Number(row))).toEqual([...from(1, 25), ...from(63, 74), ...from(75, 113)]);
  });

  it.each(
    rows.map(([row = '', , test = '', file = '', note = '']) => [row, codeIn(test)[0], codeIn(file)[0], note] as const),
  )('row %s stands under its name, or says why it does not', (_row, test, file, note) => {
    if (test === undefined || file === undefined) return expect(note).toMatch(/^not here: .{20}/);
    return expect(readFileSync(path.join(ROOT, file), 'utf8')).toContain(test);
  });
});

describe('the proofs of docs/threat-model.md', () => {
  it('exist under their names in their files', () => {
    const proofs = proofsIn(proseOf(PAGE));
    expect(proofs.length).toBeGreaterThan(70);
    expect(proofs.filter(([name, file]) => !exists(name, file))).toEqual([]);
  });

  it('include at least four for each of T1 to T10, in its own part' + verifies('HA-25'), () => {
    const parts = sectionOf(PAGE, '## T1 to T10').split(/^### /m).slice(1);
    expect(parts).toHaveLength(10);
    for (const part of parts)
      expect(proofsIn(part.split('**Tests.** ')[1] ?? '').length, part).toBeGreaterThanOrEqual(4);
  });

  it('cover the ten risks of OWASP, with a severity, what is done and what remains', () => {
    const rows = rowsOf(sectionOf(PAGE, '## The OWASP MCP Top 10'));
    expect(rows.map(([id]) => id)).toEqual(
      Array.from({ length: 10 }, (_, index) => `MCP${String(index + 1).padStart(2, '0')}:2025`),
    );
    for (const [id, risk = '', severity, here = '', remains = '', test = ''] of rows) {
      expect(['critical', 'high', 'medium', 'low'], id).toContain(severity);
      for (const cell of [risk, here, remains]) expect(cell.length, id).toBeGreaterThan(10);
      expect(proofsIn(test).length, id).toBeGreaterThanOrEqual(1);
    }
  });
});
