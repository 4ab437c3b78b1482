import { format } from '@cfworker/json-schema';
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { auditTool } from '../../catalogs/lint/definition-audit.ts';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { profileViolations } from '../../catalogs/projection/profile-violations.ts';
import { projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { toolDescription } from '../../catalogs/text/hostile-text.ts';
import { exposedNames } from '../../catalogs/tools/exposed-names.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { compileSchema } from '../../catalogs/validation/compiled-schema.ts';
import { prepareSchema } from '../../catalogs/validation/prepared-schema.ts';
import { formatFaults } from '../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { instanceOf, mutantsOf } from '../projection/schema-instances.ts';
import { verifies } from '../verifies.ts';
import { isWithheldRightly, listAll, mostWithheld, readCatalogs, readTools } from './corpus.ts';

const listed = listAll(readCatalogs());
const PROFILES = ['portable', 'flat', 'openai', 'gemini-legacy', 'nova', 'depth5', 'faithful'];

describe('the catalogs of real servers', () => {
  for (const name of PROFILES) {
    it(`project for ${name}: no tool is lost, none breaks a rule, no input changes` + verifies('CY-14'), () => {
      const profile = loadSchemaProfile(name);
      for (const { server, tool } of listed) {
        const before = JSON.stringify(tool.inputSchema);
        const projection = projectSchema(tool.inputSchema, profile);
        if ('quarantined' in projection) throw new Error(`${server} ${tool.name}: ${projection.quarantined}`);
        expect(
          projection.log.some(({ transform }) => transform === 'fallback'),
          `${server} ${tool.name}`,
        ).toBe(false);
        expect(profileViolations(projection.schema, profile), `${server} ${tool.name}`).toEqual([]);
        expect(JSON.stringify(tool.inputSchema)).toBe(before);
        expect(toolDescription({ ...tool, hints: projection.hints }).length).toBeLessThanOrEqual(1024);
      }
    });
  }

  it('keep every top-level argument and never require more than the original', () => {
    const profile = loadSchemaProfile();
    for (const { server, tool } of listed) {
      const projection = projectSchema(tool.inputSchema, profile);
      if ('quarantined' in projection) throw new Error(projection.quarantined);
      const originals = Object.keys((tool.inputSchema.properties ?? {}) as object);
      const shown = Object.keys(projection.schema.properties as object);
      expect(shown.length, `${server} ${tool.name}`).toBeGreaterThanOrEqual(originals.length);
      const lifted = projection.lift(Object.fromEntries(shown.map((name) => [name, 1]))).args;
      for (const name of originals) expect(Object.hasOwn(lifted, name), `${server} ${tool.name} ${name}`).toBe(true);
      const required = (tool.inputSchema.required ?? []) as readonly string[];
      const demanded = Object.keys(
        projection.lift(Object.fromEntries(((projection.schema.required ?? []) as string[]).map((name) => [name, 1])))
          .args,
      );
      for (const name of demanded) expect(required.includes(name), `${server} ${tool.name} ${name}`).toBe(true);
    }
  });

  it('stay below 4 KB, except tools whose first two levels alone are larger', () => {
    const profile = loadSchemaProfile();
    const large = listed.filter(({ tool }) => {
      const projection = projectSchema(tool.inputSchema, profile);
      return 'schema' in projection && JSON.stringify(projection.schema).length > profile.maxBytes;
    });
    // One tool may be large. If many are, the projection does not cut.
    expect(large.length).toBeLessThanOrEqual(Math.max(2, listed.length / 20));
  });

  it('are validated as Ajv validates the raw schemas, interpreted and compiled' + verifies('HE-06'), () => {
    let judged = 0;
    let accepted = 0;
    for (const { server, tool } of listed) {
      const oracle = rawJudge(tool.inputSchema);
      const prepared = prepareSchema(tool.inputSchema, 'input');
      if ('quarantined' in prepared) throw new Error(prepared.quarantined);
      const compiled = prepared.nodes > 300 ? undefined : compileSchema(prepared);
      const values = [false, true]
        .map((full) => instanceOf(tool.inputSchema, full))
        .filter((value) => value !== undefined);
      for (const value of [...values, ...mutantsOf(values.at(-1)), {}]) {
        const faults = createValidator(tool.inputSchema).check(value);
        const hint = `${server} ${tool.name} ${JSON.stringify(value).slice(0, 300)} ${formatFaults(faults)}`;
        expect(faults.length === 0, hint).toBe(oracle(value));
        if (compiled !== undefined) expect(compiled.isValid(value), hint).toBe(faults.length === 0);
        expect(formatFaults(faults).length).toBeLessThanOrEqual(1000);
        judged += 1;
        accepted += faults.length === 0 ? 1 : 0;
      }
    }
    expect(judged).toBeGreaterThan(3 * listed.length);
    expect(accepted).toBeGreaterThan(listed.length);
  });

  it('have a valid value for almost every tool, which passes and is lifted back unchanged', () => {
    const profile = loadSchemaProfile();
    let valid = 0;
    for (const { tool } of listed) {
      const value = instanceOf(tool.inputSchema, true);
      if (value === undefined || createValidator(tool.inputSchema).check(value).length > 0) continue;
      valid += 1;
      const projection = projectSchema(tool.inputSchema, profile);
      if ('quarantined' in projection) throw new Error(projection.quarantined);
      // The original spelling is always accepted.
      expect(createValidator(tool.inputSchema).check(projection.lift(value as Record<string, unknown>).args)).toEqual(
        [],
      );
    }
    expect(valid).toBeGreaterThan(0.9 * listed.length);
  });

  it('validate results by their own output schemas', () => {
    const withOutput = listed.filter(({ tool }) => tool.outputSchema !== undefined);
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
    for (const { server, tool } of names.values()) expect(inside).toContain(`${server}.${tool}`);
    for (const name of names.keys()) expect(name).toMatch(/^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/);
  });
});

/** Compiles the schema exactly as the server sent it with Ajv, in the dialect that it names. */
function rawJudge(schema: Readonly<Record<string, unknown>>): (value: unknown) => boolean {
  const options = {
    strict: false,
    validateSchema: false,
    ownProperties: true,
    logger: false,
    code: { optimize: false },
  } as const;
  const ajv = /draft-0[67]/.test(String(schema.$schema)) ? new Ajv(options) : new Ajv2020(options);
  for (const [name, test] of Object.entries(format)) ajv.addFormat(name, test);
  const validate = ajv.compile({ ...schema, type: 'object' });
  return (value) => validate(value) === true;
}

describe('attacks in definitions', () => {
  const poisoned = readTools<{
    readonly id: string;
    readonly class: string;
    readonly basis: string;
    readonly tool: RawTool;
  }>('attacks/poisoned_tools.json', ['class', 'basis', 'tool']);
  const benign = readTools<{ readonly id: string; readonly tool: RawTool }>('attacks/benign_tools.json', ['tool']);

  it('hidden, reordering and terminal characters always quarantine the tool', () => {
    const bytes = poisoned.filter(({ basis }) => basis === 'bytes');
    expect(bytes).not.toEqual([]);
    for (const { id, tool } of bytes) {
      const { quarantine, notes } = auditTool(tool);
      // Terminal escapes in a description are removed and noted.
      if (notes.every((note) => note.id !== 'TERMINAL_ESCAPE'))
        expect(quarantine, id).toMatch(/^TOOL_(HIDDEN_TEXT|BIDI|CONTROL_CHAR)/);
    }
  });

  it('hostile structure and illegal names quarantine the tool', () => {
    for (const { id, tool } of poisoned.filter((attack) =>
      ['schema-dos', 'invalid-name', 'padding'].some((name) => attack.class.startsWith(name)),
    )) {
      expect(auditTool(tool).quarantine, id).toMatch(/^(SCHEMA_|TOOL_)/);
    }
  });

  it('no honest tool is quarantined, and prose alone never is', () => {
    for (const { id, tool } of benign) expect(auditTool(tool).quarantine, id).toBeUndefined();
    const prose = poisoned.filter(({ basis }) => basis === 'text-heuristic');
    expect(prose.filter(({ tool }) => auditTool(tool).quarantine !== undefined)).toEqual([]);
  });

  it('few real tools are quarantined, each because it hides text or its hints contradict its name', () => {
    const hit = listed.filter(({ tool }) => auditTool(tool).quarantine !== undefined);
    expect(hit.filter(({ tool }) => !isWithheldRightly(tool)).map(({ tool }) => tool.name)).toEqual([]);
    expect(hit.length).toBeLessThanOrEqual(mostWithheld(listed.length));
  });

  it('no attack throws, with any profile', () => {
    for (const { tool } of poisoned)
      for (const name of PROFILES) projectSchema(tool.inputSchema, loadSchemaProfile(name));
  });
});
