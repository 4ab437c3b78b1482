/** Checks the definitions of servers against the schema of the protocol. Each wrong definition is refused alone. */
import { createValidator } from '../validation/validator.ts';

const TEXT = { type: 'string' };
const FLAG = { type: 'boolean' };
const OBJECT = { type: 'object' };
const ICON = {
  type: 'object',
  required: ['src'],
  properties: { src: TEXT, mimeType: TEXT, sizes: { type: 'array', items: TEXT }, theme: { enum: ['light', 'dark'] } },
};
const COMMON = { name: TEXT, title: TEXT, description: TEXT, icons: { type: 'array', items: ICON }, _meta: OBJECT };

/**
 * `Tool` of the protocol (MCP 2025-11-25, schema.json). The content of `inputSchema` is left out, because a client is
 * shown its repaired projection. An output schema passes unchanged.
 */
const TOOL = createValidator({
  type: 'object',
  required: ['name', 'inputSchema'],
  properties: {
    ...COMMON,
    inputSchema: OBJECT,
    outputSchema: {
      type: 'object',
      required: ['type'],
      properties: {
        $schema: TEXT,
        type: { const: 'object' },
        properties: { type: 'object', additionalProperties: OBJECT },
        required: { type: 'array', items: TEXT },
      },
    },
    annotations: {
      type: 'object',
      properties: { title: TEXT, readOnlyHint: FLAG, destructiveHint: FLAG, idempotentHint: FLAG, openWorldHint: FLAG },
    },
    execution: { type: 'object', properties: { taskSupport: { enum: ['required', 'optional', 'forbidden'] } } },
  },
});

/** `Prompt` of the protocol (MCP 2025-11-25, schema.json). */
const PROMPT = createValidator({
  type: 'object',
  required: ['name'],
  properties: {
    ...COMMON,
    arguments: {
      type: 'array',
      items: {
        type: 'object',
        required: ['name'],
        properties: { name: TEXT, title: TEXT, description: TEXT, required: FLAG },
      },
    },
  },
});

/** `Resource` and `ResourceTemplate` of the protocol (MCP 2025-11-25, schema.json). */
const RESOURCE = createValidator({
  type: 'object',
  required: ['name', 'uri'],
  properties: { ...COMMON, uri: { type: 'string', minLength: 1 }, mimeType: TEXT, annotations: OBJECT },
});
const RESOURCE_TEMPLATE = createValidator({
  type: 'object',
  required: ['name', 'uriTemplate'],
  properties: { ...COMMON, uriTemplate: { type: 'string', minLength: 1 }, mimeType: TEXT, annotations: OBJECT },
});

/** A prompt as a server listed it, with its unknown keys. */
export interface RawPrompt {
  readonly name: string;
  readonly description?: string;
  readonly arguments?: readonly {
    readonly name: string;
    readonly required?: boolean;
    readonly [key: string]: unknown;
  }[];
  readonly [key: string]: unknown;
}

/** A resource as a server listed it, with its unknown keys. */
export interface RawResource {
  readonly name: string;
  readonly uri: string;
  readonly [key: string]: unknown;
}

/** A resource template as a server listed it, with its unknown keys. */
export interface RawResourceTemplate {
  readonly name: string;
  /** As in RFC 6570. */
  readonly uriTemplate: string;
  readonly [key: string]: unknown;
}

/** Returns why a value is not a tool of the protocol, with the wrong member; undefined if it is one. */
export function toolFault(value: unknown): string | undefined {
  return faultOf(TOOL, value);
}

/** As `toolFault`, for a prompt. */
export function promptFault(value: unknown): string | undefined {
  return faultOf(PROMPT, value);
}

/** As `toolFault`, for a resource. */
export function resourceFault(value: unknown): string | undefined {
  return faultOf(RESOURCE, value);
}

/** As `toolFault`, for a resource template. */
export function resourceTemplateFault(value: unknown): string | undefined {
  return faultOf(RESOURCE_TEMPLATE, value);
}

function faultOf(validator: typeof TOOL, value: unknown): string | undefined {
  const [first] = validator.check(value);
  if (first === undefined) return undefined;
  return `DEFINITION_INVALID: ${first.at.length === 0 ? 'the definition' : first.path}: ${first.message}`;
}
