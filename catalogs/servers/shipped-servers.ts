/** The internal servers other than the workspace: their tools, and the semantics of these. */
import type { RawTool, Semantics, Verb } from '../tools/tool-definition.ts';

/** The server of documents, memories and facts (CY-10). */
export const KNOWLEDGE = 'knowledge';
/** The server that tells a model about its other servers (HA-20). */
export const MANAGEMENT = 'tollgate';
/** The server of search and code. A profile reaches it by `expose.search` and `expose.code`. */
export const CODE = 'code';
/** The server of the owner's own prompts. It has no tools. */
export const PROMPTS = 'prompts';

/** An internal server, as it is known without asking it. */
export interface ShippedServer {
  readonly tools: readonly RawTool[];
  readonly semantics: ReadonlyMap<string, Semantics>;
}

/** The schema of a tool without arguments. */
export const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false } as const;
/** The form of names of configured servers. A text of another form is refused, and not repeated in an answer. */
const SERVER = {
  type: 'string',
  pattern: '^[a-z][a-z0-9-]{0,63}$',
  description: 'Name of a server, as list_mcp_servers shows it.',
} as const;

/**
 * A name or an address. An owner may copy it into a command, so it has no character that a shell interprets, no user,
 * no query and no leading hyphen.
 */
const PROPOSED_SERVICE =
  '^(?:[a-z][a-z0-9-]{0,63}|https://[a-z0-9][a-z0-9.-]{0,100}(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]{0,90})?)$';

/** No argument selects whose data is searched. Tollgate takes that from the caller's identity. */
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
      description: 'The largest number of passages. Default 5.',
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
      'Search the documents of your space. Answers with passages, the best first, ' +
      'each with the title and the number of its source. ' +
      'Requests and bytes are limited for each turn, so ask only for what you need.',
    inputSchema: SEARCH,
  },
  {
    name: 'memory_search',
    description:
      'Search the memories of this user: those of this conversation, and those of no conversation. ' +
      'Answers like kb_search.',
    inputSchema: SEARCH,
  },
  {
    name: 'facts_get',
    description:
      'Look up facts of this user and space, by their keys or by a subject. ' +
      'The subject "team" gives "team" and every key that begins with "team.". Give keys or a subject, not both.',
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
      'List the servers behind Tollgate that you may use, with state, consent of the owner, ' +
      'and number of tools that you can see.',
    inputSchema: NO_ARGUMENTS,
  },
  {
    name: 'mcp_server_info',
    description: 'Show one server: its state, why it cannot be used, and its tools that you can see.',
    inputSchema: { type: 'object', properties: { server: SERVER }, required: ['server'], additionalProperties: false },
  },
  {
    name: 'manage_mcp',
    description:
      'disable hides a server for this session only: its tools are no longer in your list. ' +
      'enable shows a server again that you have disabled. ' +
      'For every other server it stores a request, and a person decides.',
    inputSchema: {
      type: 'object',
      properties: { action: { type: 'string', enum: ['enable', 'disable'] }, server: SERVER },
      required: ['action', 'server'],
      additionalProperties: false,
    },
  },
  {
    name: 'attention_summary',
    description: 'Count what waits for the owner of Tollgate, by kind. Tell the user about it; you cannot decide it.',
    inputSchema: NO_ARGUMENTS,
  },
  {
    name: 'propose_server',
    description:
      'Propose a service that a person may connect, if your task needs one that no tool of yours reaches. ' +
      'Nothing is installed, contacted or changed. At most three proposals wait at a time.',
    inputSchema: {
      type: 'object',
      properties: {
        service: {
          type: 'string',
          maxLength: 200,
          pattern: PROPOSED_SERVICE,
          description: 'A well-known service such as "github", or the https address of an MCP server, without a query.',
        },
        reason: {
          type: 'string',
          minLength: 1,
          maxLength: 500,
          description: 'What you need it for, in one or two sentences. A person reads it.',
        },
      },
      required: ['service', 'reason'],
      additionalProperties: false,
    },
  },
];

const PAGE = {
  type: 'integer',
  minimum: 1,
  maximum: 1000,
  default: 1,
  description: 'The page of the answer. Default 1.',
} as const;

/** Tools with which an agent finds other tools (`expose.search`). */
export const SEARCH_TOOLS: readonly string[] = ['find_tools'];
/** Tools with which an agent runs code (`expose.code`). */
export const CODE_TOOLS: readonly string[] = ['list_modules', 'module_info', 'run_code'];

const TOOLS_OF_CODE: readonly RawTool[] = [
  {
    name: 'find_tools',
    description:
      'Find tools by what they do, the best first. Call a tool that only reads with call_read, ' +
      'any other with call_write.',
    inputSchema: {
      type: 'object',
      properties: {
        query: {
          type: 'string',
          minLength: 1,
          maxLength: 500,
          description: 'A few words: what the tool does, and to what.',
        },
        server: { type: 'string' },
        verb: { enum: ['read', 'write'], description: 'read: only tools that only read. write: only others.' },
        page: { type: 'integer', minimum: 1 },
      },
      required: ['query'],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: 'list_modules',
    description:
      'List the modules that code can import: one for each server, and host:tollgate for read, write, edit, bash.',
    inputSchema: { type: 'object', properties: { page: PAGE }, additionalProperties: false },
    annotations: { readOnlyHint: true },
  },
  {
    name: 'module_info',
    description: 'Show the functions of a module: TypeScript declarations with hints and examples. Starts no server.',
    inputSchema: {
      type: 'object',
      properties: {
        module: {
          type: 'string',
          minLength: 1,
          maxLength: 100,
          description: 'As list_modules shows it: host:mcp-github.',
        },
        functions: {
          type: 'array',
          items: { type: 'string', maxLength: 200 },
          minItems: 1,
          maxItems: 50,
          description: 'Only these functions, with full types. Without it, large modules are shown as signatures.',
        },
        page: PAGE,
      },
      required: ['module'],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: 'run_code',
    description:
      "Run JavaScript or TypeScript that calls tools as functions: import { create_issue } from 'host:mcp-github'. " +
      'f(x) returns the value, f.async(x) a promise. A failed call returns {error}. ' +
      'Only what the code returns or prints comes back. There is no network and no file system but by tools.',
    inputSchema: {
      type: 'object',
      properties: {
        code: {
          type: 'string',
          minLength: 1,
          maxLength: 200_000,
          description: 'The code. It may use return and await.',
        },
        resume: {
          type: 'string',
          pattern: '^[0-9a-z]{10}$',
          description:
            'Instead of code: the id of a run that waited for a person or was interrupted, to go on with it.',
        },
        discard: {
          type: 'string',
          pattern: '^[0-9a-z]{10}$',
          description: 'Instead of code: the id of an interrupted run that must not go on.',
        },
      },
      minProperties: 1,
      maxProperties: 1,
      additionalProperties: false,
    },
    annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: true },
  },
];

/** The internal servers by name. The names are reserved. A caller sees a server only if a profile lists it. */
export const SHIPPED: ReadonlyMap<string, ShippedServer> = new Map([
  [KNOWLEDGE, shipped(KNOWLEDGE_TOOLS, {})],
  [MANAGEMENT, shipped(MANAGEMENT_TOOLS, { manage_mcp: 'destructive', propose_server: 'write' })],
  [CODE, shipped(TOOLS_OF_CODE, {})],
  [PROMPTS, shipped([], {})],
]);

/** A tool that `verbs` does not name only reads. */
function shipped(tools: readonly RawTool[], verbs: Readonly<Record<string, Verb>>): ShippedServer {
  return { tools, semantics: new Map(tools.map(({ name }) => [name, { verb: verbs[name] ?? 'read' }])) };
}
