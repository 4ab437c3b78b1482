/**
 * Tests that the published description and the host API agree: routes in both directions, complete schemas, and a file
 * in the package.
 * Covers: facade/serve/host.
 */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { afterEach, describe, expect, it } from 'vitest';
import { ERRORS, type ErrorCode } from '../../catalogs/errors/error-table.ts';
import { GRANT_KINDS, GRANT_SCOPES } from '../../facade/consent/grants/grant.ts';
import { describeHostApi, findOperation, OPENAPI_FILE } from '../../facade/serve/host/host-api-description.ts';
import { createHostOperations } from '../../facade/serve/host/host-operations.ts';
import { verifies } from '../verifies.ts';
import { type HostBench, startHost } from './host-bench.ts';

const { Ajv2020 } = createRequire(import.meta.url)('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
const document = JSON.parse(readFileSync(OPENAPI_FILE, 'utf8')) as {
  openapi: string;
  paths: Record<string, Record<string, { operationId: string; requestBody?: unknown; responses: object }>>;
  components: { schemas: Record<string, { properties?: Record<string, { enum?: string[] }>; description?: string }> };
};
let host: HostBench | undefined;
afterEach(async () => {
  await host?.close();
  host = undefined;
});

describe('the description of the host API', () => {
  it('names exactly the existing operations' + verifies('HB-11'), () => {
    const { operations } = describeHostApi();
    // The operation with a stream as its answer is implemented in the endpoint.
    const made = ['events', ...Object.keys(createHostOperations({} as never, {} as never, {} as never))].sort();
    expect(operations.map(({ id }) => id).sort()).toEqual(made);
    expect(new Set(made).size).toBe(operations.length);
  });

  it('routes each of its paths to its own operation, and no other path', () => {
    for (const { method, path, id } of describeHostApi().operations) {
      const at = path.replace('{id}', 'grant_x').replace('{name}', 'host_x');
      expect(findOperation(method, at).operation.id).toBe(id);
      expect(() => findOperation(method, `${at}/more`)).toThrow();
      expect(() => findOperation('PATCH', at)).toThrow();
    }
  });

  it('validates every request completely: every schema keyword is checked, and unknown keys are refused', () => {
    for (const { id, judge } of describeHostApi().operations) {
      expect([id, judge.unchecked]).toEqual([id, undefined]);
      expect([id, judge.check({ 'no such key': 1 }).length > 0]).toEqual([id, true]);
    }
  });

  it('contains valid JSON Schema 2020-12, a refusal for every operation, and bodies for POST only', () => {
    expect(document.openapi).toMatch(/^3\.1\./);
    const ajv = new Ajv2020({ strict: false });
    for (const schema of Object.values(document.components.schemas))
      expect(ajv.validateSchema(schema as object)).toBe(true);
    for (const [path, methods] of Object.entries(document.paths)) {
      expect(path.startsWith('/host/v1/')).toBe(true);
      for (const [method, operation] of Object.entries(methods)) {
        expect(Object.keys(operation.responses)).toContain('default');
        expect([path, method, operation.requestBody !== undefined]).toEqual([path, method, method === 'post']);
      }
    }
  });

  it('lists the same kinds and scopes as the code', () => {
    expect(document.components.schemas.Grant?.properties?.kind?.enum).toEqual([...GRANT_KINDS]);
    for (const scope of GRANT_SCOPES) expect(document.components.schemas.Scope?.description).toContain(scope);
  });

  it('is served as it is in the package, and every refusal has a code of the error table', async () => {
    host = await startHost();
    const response = await host.ask('GET /openapi.json');
    expect(response.value).toEqual(document);
    const code = (await host.ask('GET /nowhere')).value.error.code as ErrorCode;
    expect(Object.keys(ERRORS)).toContain(code);
  });
});
