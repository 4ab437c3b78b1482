import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { format } from '@cfworker/json-schema';
import { describe, expect, it } from 'vitest';
import { auditTool } from '../../catalogs/audit.ts';
import { exposedNames } from '../../catalogs/names.ts';
import { loadSchemaProfile, project } from '../../catalogs/projection/project.ts';
import { violations } from '../../catalogs/projection/verify.ts';
import { toolDescription } from '../../catalogs/text.ts';
import type { RawTool } from '../../catalogs/tool.ts';
import { createValidator, formatFaults } from '../../catalogs/validate.ts';
import { compileSchema } from '../../catalogs/validation/compiled.ts';
import { prepareSchema } from '../../catalogs/validation/prepare.ts';
import { instanceOf, mutantsOf } from '../catalogs/instances.ts';
import { verifies } from '../verifies.ts';

const corpora = process.env['TOLLGATE_CORPORA'] ?? path.resolve(import.meta.dirname, '../../../shared/corpora');

function read(file: string): unknown {
  return JSON.parse(readFileSync(path.join(corpora, file), 'utf8').replaceAll('{{+}}', ''));
}

interface Listed {
  readonly server: string;
  readonly tool: RawTool;
}

const files = readdirSync(path.join(corpora, 'catalogs')).filter((name) => name.endsWith('.json'));
const listed: readonly Listed[] = files.flatMap((file) => (read(`catalogs/${file}`) as { readonly tools: readonly RawTool[] }).tools.map((tool) => ({
  server: file.replace(/\.json$/, '').toLowerCase().replace(/[^a-z0-9]+/g, '-'), tool,
})));
const PROFILES = ['portable', 'flat', 'openai', 'gemini-legacy', 'nova', 'depth5', 'faithful'];

describe('the catalogs of 50 real servers', () => {
  it('are all here', () => {
    expect(files.length).toBe(50);
    expect(listed.length).toBe(2613);
  });

  for (const name of PROFILES) {
    it(`project under ${name}: none lost, none breaks a rule, no input changed` + verifies('CY-14'), () => {
      const profile = loadSchemaProfile(name);
      for (const { server, tool } of listed) {
        const before = JSON.stringify(tool.inputSchema);
        const projection = project(tool.inputSchema, profile);
        if ('quarantined' in projection) throw new Error(`${server} ${tool.name}: ${projection.quarantined}`);
        expect(projection.log.some(({ transform }) => transform === 'fallback'), `${server} ${tool.name}`).toBe(false);
        expect(violations(projection.schema, profile), `${server} ${tool.name}`).toEqual([]);
        expect(JSON.stringify(tool.inputSchema)).toBe(before);
        expect(toolDescription({ ...tool, hints: projection.hints }).length).toBeLessThanOrEqual(1024);
      }
    });
  }

  it('show every top-level argument and never demand more than the original', () => {
    const profile = loadSchemaProfile();
    for (const { server, tool } of listed) {
      const projection = project(tool.inputSchema, profile);
      if ('quarantined' in projection) throw new Error(projection.quarantined);
      const originals = Object.keys((tool.inputSchema['properties'] ?? {}) as object);
      const shown = Object.keys(projection.schema['properties'] as object);
      expect(shown.length, `${server} ${tool.name}`).toBeGreaterThanOrEqual(originals.length);
      const lifted = projection.lift(Object.fromEntries(shown.map((name) => [name, 1]))).args;
      for (const name of originals) expect(Object.hasOwn(lifted, name), `${server} ${tool.name} ${name}`).toBe(true);
      const required = (tool.inputSchema['required'] ?? []) as readonly string[];
      const demanded = Object.keys(projection.lift(Object.fromEntries(((projection.schema['required'] ?? []) as string[]).map((name) => [name, 1]))).args);
      for (const name of demanded) expect(required.includes(name), `${server} ${tool.name} ${name}`).toBe(true);
    }
  });

  it('keep to 4 KB, but for tools whose first two levels alone are larger', () => {
    const profile = loadSchemaProfile();
    const large = listed.filter(({ tool }) => {
      const projection = project(tool.inputSchema, profile);
      return 'schema' in projection && JSON.stringify(projection.schema).length > profile.maxBytes;
    });
    expect(large.length).toBeLessThan(listed.length / 50);
  });

  it('are judged as Ajv judges the raw schemas, interpreted and compiled alike' + verifies('HE-06'), () => {
    let judged = 0;
    let accepted = 0;
    for (const { server, tool } of listed) {
      const oracle = rawJudge(tool.inputSchema);
      const prepared = prepareSchema(tool.inputSchema, 'input');
      if ('quarantined' in prepared) throw new Error(prepared.quarantined);
      const compiled = prepared.nodes > 300 ? undefined : compileSchema(prepared);
      const values = [false, true].map((full) => instanceOf(tool.inputSchema, full)).filter((value) => value !== undefined);
      for (const value of [...values, ...mutantsOf(values.at(-1)), {}]) {
        const faults = createValidator(tool.inputSchema).check(value);
        const hint = `${server} ${tool.name} ${JSON.stringify(value).slice(0, 300)} ${formatFaults(faults)}`;
        expect(faults.length === 0, hint).toBe(oracle(value));
        if (compiled !== undefined) expect(compiled.valid(value), hint).toBe(faults.length === 0);
        expect(formatFaults(faults).length).toBeLessThanOrEqual(1000);
        judged += 1;
        accepted += faults.length === 0 ? 1 : 0;
      }
    }
    expect(judged).toBeGreaterThan(20_000);
    expect(accepted).toBeGreaterThan(10_000);
  });

  it('hold a valid value for almost every tool, which passes and comes back from the projection unchanged', () => {
    const profile = loadSchemaProfile();
    let valid = 0;
    for (const { tool } of listed) {
      const value = instanceOf(tool.inputSchema, true);
      if (value === undefined || createValidator(tool.inputSchema).check(value).length > 0) continue;
      valid += 1;
      const projection = project(tool.inputSchema, profile);
      if ('quarantined' in projection) throw new Error(projection.quarantined);
      // The original spelling is always understood.
      expect(createValidator(tool.inputSchema).check(projection.lift(value as Record<string, unknown>).args)).toEqual([]);
    }
    expect(valid).toBeGreaterThan(2550);
  });

  it('judge outputs by their own schemas', () => {
    const withOutput = listed.filter(({ tool }) => tool.outputSchema !== undefined);
    expect(withOutput.length).toBeGreaterThan(380);
    for (const { server, tool } of withOutput) {
      const validator = createValidator(tool.outputSchema, 'output');
      expect(validator.unchecked, `${server} ${tool.name}`).toBeUndefined();
      validator.check({});
    }
  });

  it('get legal names that are all different' + verifies('CY-04', 'PF-06'), () => {
    const { names, collisions } = exposedNames(listed.map(({ server, tool }) => ({ server, tool: tool.name })));
    const inside = new Set(listed.map(({ server, tool }) => `${server}.${tool.name}`));
    expect(names.size + collisions.flatMap(({ tools }) => tools).length).toBe(listed.length);
    expect(inside.size).toBe(names.size);
    for (const name of names.keys()) expect(name).toMatch(/^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/);
  });
});

/** Ajv on the schema exactly as the server sent it, in the dialect that it names. */
function rawJudge(schema: Readonly<Record<string, unknown>>): (value: unknown) => boolean {
  const options = { strict: false, validateSchema: false, ownProperties: true, logger: false, code: { optimize: false } } as const;
  const ajv = /draft-0[67]/.test(String(schema['$schema'])) ? new Ajv(options) : new Ajv2020(options);
  for (const [name, test] of Object.entries(format)) ajv.addFormat(name, test);
  const validate = ajv.compile({ ...schema, type: 'object' });
  return (value) => validate(value) === true;
}

describe('attacks in definitions', () => {
  const poisoned = (read('attacks/poisoned_tools.json') as { readonly cases: readonly { readonly id: string; readonly class: string; readonly basis: string; readonly tool: RawTool }[] }).cases;
  const benign = (read('attacks/benign_tools.json') as { readonly cases: readonly { readonly id: string; readonly tool: RawTool }[] }).cases;

  it('hidden, reordering and terminal characters quarantine the tool, every one', () => {
    const bytes = poisoned.filter(({ basis }) => basis === 'bytes');
    expect(bytes.length).toBeGreaterThan(30);
    for (const { id, tool } of bytes) expect(auditTool(tool).quarantine, id).toMatch(/^TOOL_(HIDDEN_TEXT|BIDI|CONTROL_CHAR)/);
  });

  it('hostile structure and illegal names quarantine the tool', () => {
    for (const { id, tool } of poisoned.filter((attack) => ['schema-dos', 'invalid-name', 'padding'].some((name) => attack.class.startsWith(name)))) {
      expect(auditTool(tool).quarantine, id).toMatch(/^(SCHEMA_|TOOL_)/);
    }
  });

  it('no honest tool is quarantined, and prose alone never is', () => {
    for (const { id, tool } of benign) expect(auditTool(tool).quarantine, id).toBeUndefined();
    const prose = poisoned.filter(({ basis }) => basis === 'text-heuristic');
    expect(prose.filter(({ tool }) => auditTool(tool).quarantine !== undefined)).toEqual([]);
  });

  it('of 2,613 real tools two are quarantined: a zero-width space between Latin words, and a tool that deletes and says that it only reads', () => {
    const hit = listed.filter(({ tool }) => auditTool(tool).quarantine !== undefined);
    expect(hit.map(({ tool }) => tool.name)).toEqual(['im_v1_message_list', 'collaborator_delete_remote_system_configuration']);
  });

  it('no attack throws, whatever the profile', () => {
    for (const { tool } of poisoned) for (const name of PROFILES) project(tool.inputSchema, loadSchemaProfile(name));
  });
});
