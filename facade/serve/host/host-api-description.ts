/**
 * The published description of the host API, and the check of requests against it. Paths, keys and values that it does
 * not name are refused.
 */
import { readFileSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { formatFaults } from '../../../catalogs/validation/validation-faults.ts';
import { createValidator, type Validator } from '../../../catalogs/validation/validator.ts';
import type { Principal } from '../../../policies/port.ts';

/** The document, served unchanged. */
export const OPENAPI_FILE = new URL('./openapi.json', import.meta.url);

/** Parameters and body of a request, as its operation describes them. */
export type OperationInput = Readonly<Record<string, unknown>>;

/** What an operation works with. `argsText`: the text of `arguments` as it was sent. */
export interface HostRequest {
  readonly principal: Principal;
  readonly input: OperationInput;
  readonly argsText?: string;
  /** Aborted when the host disconnects. */
  readonly gone: AbortSignal;
  /** Set if the host reads the answer as a stream: called with the progress of the call. */
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
}

/** An operation returns its answer, or the JSON text of it. It throws what the facade throws, and IDENTITY. */
export type HostOperations = Readonly<Record<string, (request: HostRequest) => Promise<object | string>>>;

/** One operation of the document. */
export interface HostApiOperation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  /** The status of an answer. */
  readonly status: number;
  readonly hasBody: boolean;
  /** Validates the body, or the parameters of path and query as one object. */
  readonly judge: Validator;
}

interface Described {
  readonly operationId: string;
  readonly parameters?: readonly { readonly name: string; readonly required?: true; readonly schema: object }[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: object } } };
  readonly responses: Readonly<Record<string, unknown>>;
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly components: { readonly schemas: object };
}

let known: { readonly text: string; readonly operations: readonly HostApiOperation[] } | undefined;

/** The document and its operations; read once. */
export function describeHostApi(): { readonly text: string; readonly operations: readonly HostApiOperation[] } {
  if (known !== undefined) return known;
  const text = readFileSync(OPENAPI_FILE, 'utf8');
  const { paths, components } = JSON.parse(text) as Document;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]): HostApiOperation => {
      const body = described.requestBody?.content['application/json'].schema;
      return {
        id: described.operationId,
        method: method.toUpperCase(),
        path,
        hasBody: body !== undefined,
        status: Number(Object.keys(described.responses).find((status) => status !== 'default')),
        judge: createValidator(standAlone(body ?? schemaOf(described.parameters ?? []), components.schemas)),
      };
    }),
  );
  known = { text, operations };
  return known;
}

/** Returns a schema of the document with the definitions that it refers to. */
function standAlone(schema: object, components: object): object {
  return JSON.parse(
    JSON.stringify({ ...schema, $defs: components }).replaceAll('"#/components/schemas/', '"#/$defs/'),
  ) as object;
}

/**
 * Returns the operation of a path, and the path's parameters. Nothing is decoded, because no name contains a percent
 * sign. Throws HTTP_PATH, and HTTP_METHOD with the methods of the path.
 */
export function findOperation(
  method: string,
  path: string,
): { readonly operation: HostApiOperation; readonly named: Readonly<Record<string, string>> } {
  const fitting = describeHostApi().operations.flatMap((operation) => {
    const named = match(operation.path, path);
    return named === undefined ? [] : [{ operation, named }];
  });
  // A path without parameters takes precedence over one with a parameter.
  const found = fitting
    .filter(({ operation }) => operation.method === method)
    .sort((a, b) => Object.keys(a.named).length - Object.keys(b.named).length)[0];
  if (found !== undefined) return found;
  const [first] = fitting;
  if (first === undefined)
    throw new TollgateError('HTTP_PATH', { next: 'GET /host/v1/openapi.json describes all paths.' });
  const below = describeHostApi().operations.filter(
    (operation) => operation.method === method && operation.path.startsWith(`${first.operation.path}/{`),
  );
  const methods = fitting.map(({ operation }) => operation.method);
  const longer = below.map((operation) => `${operation.method} ${operation.path}`);
  throw new TollgateError('HTTP_METHOD', {
    next: `Use ${[...methods, ...longer].join(' or ')}.`,
    data: { allow: methods.join(', ') },
  });
}

/** Validates a request. Throws WIRE_PARAMS, naming each fault. */
export function checkOperationInput(operation: HostApiOperation, asked: OperationInput): void {
  const faults = operation.judge.check(asked);
  if (faults.length > 0)
    throw new TollgateError('WIRE_PARAMS', {
      detail: formatFaults(faults),
      next: 'GET /host/v1/openapi.json describes the parameters.',
    });
}

function schemaOf(parameters: NonNullable<Described['parameters']>): object {
  return {
    type: 'object',
    additionalProperties: false,
    properties: Object.fromEntries(parameters.map(({ name, schema }) => [name, schema])),
    required: parameters.filter(({ required }) => required === true).map(({ name }) => name),
  };
}

function match(template: string, path: string): Readonly<Record<string, string>> | undefined {
  const [wanted, given] = [template.split('/'), path.split('/')];
  if (wanted.length !== given.length) return undefined;
  const named: [string, string][] = [];
  for (const [at, part] of wanted.entries()) {
    const value = given[at] ?? '';
    if (part.startsWith('{') && value !== '') named.push([part.slice(1, -1), value]);
    else if (part !== value) return undefined;
  }
  return Object.fromEntries(named);
}
