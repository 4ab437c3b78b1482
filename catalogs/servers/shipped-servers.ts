/** The internal servers besides the workspace: their tools and what these do. */
import type { RawTool, Semantics, Verb } from '../tools/tool-definition.ts';

/** The server of documents, memories and facts (CY-10). */
export const KNOWLEDGE = 'knowledge';
/** The server with which a model looks at its other servers (HA-20). */
export const MANAGEMENT = 'tollgate';

/** An internal server, as it is known without asking it. */
export interface ShippedServer {
  readonly tools: readonly RawTool[];
  readonly semantics: ReadonlyMap<string, Semantics>;
}

const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false } as const;
/** The form of names of configured servers. A text of another form is no name, and is not repeated in an answer. */
const SERVER = {
  type: 'string',
  pattern: '^[a-z][a-z0-9-]{0,63}$',
  description: 'Name of a server, as list_mcp_servers shows it.',
} as const;

/** The arguments do not say whose data is searched, and no other arguments are accepted: Tollgate adds that itself. */
const SEARCH = {
  type: 'object',
  properties: {
    query: {
      type: 'string',
      minLength: 1,
      maxLength: 1000,
      description: 'Words to look for, in any language. There is no query syntax.',
    },
    limit: {
      type: 'integer',
      minimum: 1,
      maximum: 20,
      default: 5,
      description: 'The most passages to answer with. Default 5.',
    },
  },
  required: ['query'],
  additionalProperties: false,
} as const;

const KEY = { type: 'string', minLength: 1, maxLength: 200 } as const;

const KNOWLEDGE_TOOLS: readonly RawTool[] = [
  {
    name: 'kb_search',
    description:
      'Search the documents of your space. Answers with passages, the best first, each with the title and the number of its source. Requests and bytes are limited for each turn: ask for what you need.',
    inputSchema: SEARCH,
  },
  {
    name: 'memory_search',
    description:
      'Search what was kept for this user: memories of this conversation, and those that belong to none. Answers like kb_search.',
    inputSchema: SEARCH,
  },
  {
    name: 'facts_get',
    description:
      'Look up facts of this user and space, by their keys or by a subject: subject "team" gives "team" and every key that begins with "team.". Give one of the two.',
    inputSchema: {
      type: 'object',
      properties: {
        keys: { type: 'array', items: KEY, minItems: 1, maxItems: 20, description: 'Keys, exactly as they were set.' },
        subject: { ...KEY, description: 'The beginning of keys, up to a dot.' },
      },
      minProperties: 1,
      maxProperties: 1,
      additionalProperties: false,
    },
  },
];

const MANAGEMENT_TOOLS: readonly RawTool[] = [
  {
    name: 'list_mcp_servers',
    description:
      'List the servers behind Tollgate that you may use: state, consent of the owner, number of tools that you can see.',
    inputSchema: NO_ARGUMENTS,
  },
  {
    name: 'mcp_server_info',
    description: 'Show one server: its state and why it cannot be used, and those of its tools that you can see.',
    inputSchema: { type: 'object', properties: { server: SERVER }, required: ['server'], additionalProperties: false },
  },
  {
    name: 'manage_mcp',
    description:
      'disable sets a server aside for this session only: its tools leave your list. enable brings back what you have set aside; for every other server it stores a request, and a person decides.',
    inputSchema: {
      type: 'object',
      properties: { action: { type: 'string', enum: ['enable', 'disable'] }, server: SERVER },
      required: ['action', 'server'],
      additionalProperties: false,
    },
  },
];

/** By name. Their names are reserved, and a caller sees them only if one of its profiles lists them. */
export const SHIPPED: ReadonlyMap<string, ShippedServer> = new Map([
  [KNOWLEDGE, shipped(KNOWLEDGE_TOOLS, {})],
  [MANAGEMENT, shipped(MANAGEMENT_TOOLS, { manage_mcp: 'destructive' })],
]);

/** A tool that is not named only reads. */
function shipped(tools: readonly RawTool[], verbs: Readonly<Record<string, Verb>>): ShippedServer {
  return { tools, semantics: new Map(tools.map(({ name }) => [name, { verb: verbs[name] ?? 'read' }])) };
}
