/**
 * Answers find_tools: the tools of the caller that fit a query, one line each. What Tollgate says of a tool comes
 * before the words of its server, so that a description cannot pass for them.
 */
import type { InProcessAnswer } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CODE } from '../../catalogs/servers/shipped-servers.ts';
import { memoize } from '../../catalogs/text/collections.ts';
import { cleanDescription } from '../../catalogs/text/hostile-text.ts';
import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import type { RawTool, Verb } from '../../catalogs/tools/tool-definition.ts';
import { didYouMean, listNames } from '../config/config-problems.ts';
import { type ExposedTool, onlyReads, serversBehind, verbsOf } from '../exposure/exposed-tool.ts';
import { noteFound } from '../exposure/list-tools.ts';
import type { NameTable } from '../exposure/name-table.ts';
import { policyCondition } from '../exposure/tool-description.ts';
import { CALL_READ, CALL_WRITE } from '../exposure/wrapped-calls.ts';
import type { CodeTool } from './code-server.ts';
import { signatureOf } from './declarations/call-signature.ts';
import { ToolIndex, type ToolText } from './tool-index.ts';

interface Question {
  readonly query: string;
  readonly server?: string;
  readonly verb?: 'read' | 'write';
  readonly page?: number;
}

interface SearchableTools {
  readonly tools: readonly ExposedTool[];
  readonly index: ToolIndex;
}

const PAGE_SIZE = 10;
/** Characters of one line's description and signature. */
const DESCRIPTION_CHARS = 160;
const SIGNATURE_CHARS = 300;
/** Characters of a description, and of the descriptions of all arguments, that are searched. */
const SEARCHED_CHARS = 2_000;
const VERB_WORDS: Readonly<Record<Verb, string>> = {
  read: 'reads',
  write: 'writes',
  destructive: 'destructive',
  execute: 'runs code',
};

/** Finds tools (`CodeTool`). Throws ARGS_INVALID for an unknown server. */
export const findTools: CodeTool = async ({ call, session, facade }) => {
  const { query, server, verb, page = 1 } = call.args.value as unknown as Question;
  const table = await facade.tableOf(session);
  const { tools, index } = await searchable(table);
  const servers = new Set(tools.flatMap(serverNames));
  if (server !== undefined && !servers.has(server))
    throw new TollgateError('ARGS_INVALID', {
      detail: `server: you see no tools of such a server; ${didYouMean(server, servers)}`,
      next: 'Use a name of a server, or leave it out.',
      data: { paths: ['server'] },
    });
  const ranked = (await index.search(query)).map((at) => tools[at] as ExposedTool);
  const found = ranked.filter(
    (one) =>
      (server === undefined || serverNames(one).includes(server)) &&
      (verb === undefined || onlyReads(one) === (verb === 'read')),
  );
  const shown = found.slice((page - 1) * PAGE_SIZE, page * PAGE_SIZE);
  // The best tool counts as the one that was found last.
  noteFound(session, table, [...shown].reverse());
  return answer({ found, shown, page, without: ranked.length, servers, table });
};

/** Returns the tools that a search finds, with their index. It is made once for each table. */
const searchable = memoize(async ({ visible }: NameTable): Promise<SearchableTools> => {
  const tools = visible.filter(({ server }) => server.name !== CODE);
  const texts: ToolText[] = [];
  for await (const one of inTimeSlices(tools)) texts.push(toolText(one));
  return { tools, index: await ToolIndex.of(texts) };
});

function serverNames(exposed: ExposedTool): readonly string[] {
  return serversBehind(exposed).map(({ name }) => name);
}

/** A definition as the agent would see it in a list. */
interface ShownDefinition {
  readonly title?: unknown;
  readonly annotations?: { readonly title?: unknown };
  readonly inputSchema?: {
    readonly properties?: Readonly<Record<string, { readonly type?: unknown; readonly description?: unknown }>>;
    readonly required?: unknown;
  };
}

function toolText(exposed: ExposedTool): ToolText {
  const { title, annotations, inputSchema } = JSON.parse(exposed.text) as ShownDefinition;
  const own = exposed.entry?.tool.name ?? exposed.name;
  const isAlias = exposed.decision?.expose.some(({ name }) => name === exposed.name) === true;
  const args = Object.entries(inputSchema?.properties ?? {});
  return {
    name: isAlias ? `${own} ${exposed.name}` : own,
    title: String(title ?? annotations?.title ?? ''),
    description: (exposed.description ?? '').slice(0, SEARCHED_CHARS),
    args: args
      .map(([name, schema]) => `${name} ${typeof schema?.description === 'string' ? schema.description : ''}`)
      .join(' ')
      .slice(0, SEARCHED_CHARS),
    server: serverNames(exposed).join(' '),
  };
}

function answer({
  found,
  shown,
  page,
  without,
  servers,
  table,
}: {
  readonly found: readonly ExposedTool[];
  readonly shown: readonly ExposedTool[];
  readonly page: number;
  /** How many tools there are without `server` and `verb`. */
  readonly without: number;
  readonly servers: ReadonlySet<string>;
  readonly table: NameTable;
}): InProcessAnswer {
  const pages = Math.ceil(found.length / PAGE_SIZE);
  if (found.length === 0) {
    const more = without === 0 ? '' : ` Without server and verb there are ${without}.`;
    return { text: `No tool was found.${more} Use other words, or fewer. Servers: ${listNames(servers)}.`, hits: 0 };
  }
  if (shown.length === 0) return { text: `There is no page ${page}: the last one is ${pages}.`, hits: found.length };
  const next = page < pages ? ` Next: page ${page + 1} of ${pages}.` : '';
  const how = table.byName.has(CALL_READ)
    ? ` Call what only reads with ${CALL_READ}, all else with ${CALL_WRITE}, by name.`
    : '';
  const head = `${found.length} found, the best first.${next}${how}`;
  return { text: [head, ...shown.map(lineOf)].join('\n'), hits: found.length };
}

/** Returns the line of one tool: its name, server, verb and condition, then the words of its server. */
function lineOf(exposed: ExposedTool): string {
  const { name, decision, description = '' } = exposed;
  const verbs = [...verbsOf(exposed)].map((verb) => VERB_WORDS[verb]).join(' or ');
  const facts = [serverNames(exposed).join(' or '), ...(verbs === '' ? [] : [verbs])].join(', ');
  const condition = decision?.verdict === 'maybe' ? `; ${policyCondition(decision)}` : '';
  return [name, oneLine(facts + condition, Infinity), signature(exposed), oneLine(description, DESCRIPTION_CHARS)]
    .filter((part) => part !== '')
    .join(' — ');
}

/** Returns the arguments of a tool, and what it returns, in one line: `({owner: string, body?: string})`. */
function signature({ name, text }: ExposedTool): string {
  const { inputSchema, outputSchema } = JSON.parse(text) as RawTool;
  const tool = { name, functionName: '', inputSchema, ...(outputSchema !== undefined && { outputSchema }) };
  return oneLine(signatureOf(tool, SIGNATURE_CHARS), SIGNATURE_CHARS);
}

function oneLine(text: string, max: number): string {
  return cleanDescription(text.replace(/\s+/g, ' ').trim(), { max });
}
