import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { auditTool, auditValue, type AuditFinding } from '../../catalogs/audit.ts';
import { exposedNames } from '../../catalogs/names.ts';
import type { RawTool } from '../../catalogs/tool.ts';
import { verifies } from '../verifies.ts';

const corpora = process.env['TOLLGATE_CORPORA'] ?? path.resolve(import.meta.dirname, '../../../shared/corpora');

function read<T>(file: string): T {
  return JSON.parse(readFileSync(path.join(corpora, file), 'utf8').replaceAll('{{+}}', '')) as T;
}

interface Case {
  readonly id: string;
  readonly class: string;
  readonly basis: string;
  readonly kind?: string;
  readonly tool: RawTool;
  readonly content?: unknown;
}

const poisoned = read<{ cases: readonly Case[] }>('attacks/poisoned_tools.json').cases;
const benign = read<{ cases: readonly Case[] }>('attacks/benign_tools.json').cases;
const overt = read<{ cases: readonly Case[] }>('attacks/overt_malicious_tools.json').cases;
const outputs = read<{ cases: readonly Case[] }>('attacks/outputs.json').cases;
const catalogs = readdirSync(path.join(corpora, 'catalogs')).filter((name) => name.endsWith('.json')).map((file) => read<{ tools: readonly RawTool[]; serverInfo?: { instructions?: string } }>(`catalogs/${file}`).tools);
const others = new Map([['read_file', 'server']]);

function audit({ tool }: Pick<Case, 'tool'>): AuditFinding {
  return auditTool(tool, { own: new Set([tool.name]), others: new Map() });
}

/** `blocked/noted/silent` of some cases. */
function tally(cases: readonly Case[]): string {
  const found = cases.map(audit);
  const blocked = found.filter(({ quarantine }) => quarantine !== undefined).length;
  const noted = found.filter(({ quarantine, notes }) => quarantine === undefined && notes.length > 0).length;
  return `${blocked}/${noted}/${cases.length - blocked - noted}`;
}

function of(basis: string, kind?: RegExp): readonly Case[] {
  return poisoned.filter((one) => one.basis === basis && (kind === undefined || kind.test(one.class)));
}

describe('what blocks' + verifies('HA-17'), () => {
  it('every hidden, reordering or terminal character, every one of 32 cases', () => {
    expect(of('bytes').map(audit).filter(({ quarantine }) => quarantine === undefined)).toEqual([]);
    expect(of('bytes')).toHaveLength(32);
  });

  it('13 of 15 hostile structures; the other two are noted, for honest tools have them too: a name of another server, which names keep apart, and arguments that are not declared', () => {
    const structure = of('structure');
    expect(structure).toHaveLength(15);
    const rest = structure.filter((one) => audit(one).quarantine === undefined);
    expect(rest.map(({ id, class: kind, tool }) => [id, kind, auditTool(tool, { own: new Set(), others }).notes.map((note) => note.id)])).toEqual([
      ['p302', 'description-code-mismatch', ['UNDECLARED']],
      ['p421', 'name-collision', ['NAME_COLLISION']],
    ]);
    expect(exposedNames([{ server: 'server', tool: 'read_file' }, { server: 'other', tool: 'read_file' }])).toMatchObject({ collisions: [] });
  });

  it('no benign control of 594, and two of 2,613 real tools (0.08 %)', () => {
    expect(benign.filter((one) => audit(one).quarantine !== undefined)).toEqual([]);
    expect(catalogs.flat().filter((tool) => auditTool(tool).quarantine !== undefined).map(({ name }) => name)).toEqual(['im_v1_message_list', 'collaborator_delete_remote_system_configuration']);
  });

  it('never prose alone', () => {
    for (const one of [...of('text-heuristic'), ...of('confusable'), ...of('not-in-text'), ...overt]) expect(audit(one).quarantine, one.id).toBeUndefined();
  });
});

describe('what is noted, in numbers (docs/description-audit.md)', () => {
  it('look-alike letters: all', () => {
    expect(tally(of('confusable'))).toBe('0/11/0');
  });

  it('known wording: 104 of 107; the other three say nothing but what an honest tool says', () => {
    const prose = of('text-heuristic');
    expect(tally(prose)).toBe('0/104/3');
    expect(prose.filter((one) => audit(one).notes.length === 0).map(({ id, tool }) => [id, tool.description])).toEqual([
      ['p290', 'Read file contents from specified path'], ['p291', 'Execute SQL query against database'], ['p292', 'Make HTTP API call to specified endpoint'],
    ]);
  });

  it.each([
    ['tool-poisoning', '0/49/0'], ['schema-poisoning', '0/14/0'], ['tool-shadowing', '0/13/3'], ['sensitive-file', '0/10/0'], ['preference-manipulation', '0/5/0'],
    ['consent-fatigue', '0/3/0'], ['encoded', '0/2/0'], ['dangerous-capability', '0/6/0'],
  ])('by class: %s', (kind, expected) => {
    expect(tally(of('text-heuristic', new RegExp(`^${kind}`)))).toBe(expected);
  });

  it('instructions and prompts with the sentences of results that attack', () => {
    const lines = outputs.filter((one) => one.class === 'line-jumping' && (one as unknown as { expected: string }).expected === 'flag');
    const noted = lines.filter(({ content }) => auditValue(content, 'instructions').notes.length > 0);
    expect([lines.length, noted.length]).toEqual([11, 11]);
  });

  it('openly harmful tools: 36 of 190; what a tool does is not in its words', () => {
    expect(tally(overt)).toBe('0/36/154');
  });

  it('of honest tools: 4 of 594 controls, and 139 of 2,613 real ones (5.3 %)', () => {
    expect(tally(benign)).toBe('0/4/590');
    const found = catalogs.flatMap((tools) => tools.map((tool) => auditTool(tool, { own: new Set(tools.map(({ name }) => name)), others: new Map() })));
    expect(found.filter(({ notes }) => notes.length > 0).length).toBe(139);
  });
});

describe('what it cannot see, asserted so that the docs stay honest', () => {
  it.each([['paraphrase', '0/1/4'], ['encoded', '0/0/1'], ['description-code-mismatch', '0/0/7'], ['behaviour', '0/7/75']])('%s', (kind, expected) => {
    expect(tally(of('not-in-text', new RegExp(`^${kind}`)))).toBe(expected);
  });

  it('the same demand in Spanish or German, in other words, or in a cipher', () => {
    for (const id of ['p387', 'p389', 'p390', 'p392', 'p393']) expect(audit(poisoned.find((one) => one.id === id) as Case).notes, id).toEqual([]);
  });

  it('a definition that changes after it was approved: that is the pin, not the audit', () => {
    expect(tally(of('hash-change'))).toBe('1/6/8');
  });
});
