/** Solves a task in one of four ways, and measures what a model would have read and written. */
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { ScriptedTask, TaskCall } from './scripted-tasks.ts';
import { CostMeter, type TaskCost } from './task-costs.ts';
import type { FACADE_WAYS, World } from './task-worlds.ts';

/** `raw`: without Tollgate. */
export type Way = 'raw' | (typeof FACADE_WAYS)[number];
/** All ways, in the order of the table. */
export const WAYS = ['raw', 'tollgate', 'search', 'code'] as const satisfies readonly Way[];

const PRIMITIVES = ['read', 'write', 'edit', 'bash'];
/** Pages of find_tools that a script reads before it gives up. */
const MOST_PAGES = 5;

/** Sends one call by its exposed name. Returns its result. */
type Send = (name: string, args: Readonly<Record<string, unknown>>) => Promise<ToolResult>;

/** Solves a task. Throws if a call fails, if a tool is not found, and if the task is not solved. */
export async function solve(world: World, task: ScriptedTask, way: Way): Promise<TaskCost> {
  world.reset();
  const meter = new CostMeter();
  const value = way === 'raw' ? await raw(world, task, meter) : await throughFacade(world, task, { meter, way });
  if (!task.check(value)) throw new Error(`${task.title} (${way}) is not solved: ${JSON.stringify(value)}`);
  return meter.cost();
}

async function raw(world: World, { steps }: ScriptedTask, meter: CostMeter): Promise<unknown> {
  meter.add('lists', await world.rawList(), world.workspace);
  return steps(async (tool, args) => {
    const [server = '', name = ''] = tool.split('.');
    const send = metered(world, meter, async (own, given) => {
      const reply = await (await world.rawServer(server)).ask('tools/call', { name: own, arguments: given });
      return (JSON.parse(reply.toString('utf8')) as { readonly result: ToolResult }).result;
    });
    return valueOf(await send(name, args));
  }, world.workspace);
}

async function throughFacade(
  world: World,
  task: ScriptedTask,
  { meter, way }: { readonly meter: CostMeter; readonly way: Exclude<Way, 'raw'> },
): Promise<unknown> {
  const { facade, workspace } = world;
  const session = facade.open(way);
  meter.add('lists', JSON.stringify({ tools: await facade.list(session) }), workspace);
  const send = metered(world, meter, async (name, args) => {
    const { result, text } = await facade.call(session, name, args);
    if (result === undefined) throw new Error(`${name}: ${text}`);
    return result;
  });
  if (way === 'code') return inCode(task, send);
  const call: TaskCall = way === 'search' ? found(task, send) : named(send);
  return (task.own ?? task.steps)(call, '.');
}

const named =
  (send: Send): TaskCall =>
  async (tool, args) =>
    valueOf(await send(nameOf(tool), args));

/** Finds each tool before its first call, and calls it by call_read or call_write. */
function found({ queries }: ScriptedTask, send: Send): TaskCall {
  const wrappers = new Map<string, string>();
  return async (tool, args) => {
    const name = nameOf(tool);
    if (PRIMITIVES.includes(name)) return valueOf(await send(name, args));
    const wrapper = wrappers.get(tool) ?? (await find(send, name, queries[tool] ?? ''));
    wrappers.set(tool, wrapper);
    return valueOf(await send(wrapper, { name, arguments: args }));
  };
}

/** Returns the tool by which the found one is called. */
async function find(send: Send, name: string, query: string): Promise<string> {
  for (let page = 1; page <= MOST_PAGES; page += 1) {
    const text = textOf(await send('find_tools', page === 1 ? { query } : { query, page }));
    const line = text.split('\n').find((one) => one.startsWith(`${name} `));
    if (line !== undefined) return / — [^—]*\breads\b/.test(line) ? 'call_read' : 'call_write';
  }
  throw new Error(`find_tools ${JSON.stringify(query)}: ${name} is not on the first ${MOST_PAGES} pages.`);
}

/** Looks the functions up, then runs the code. Among few servers it lists the modules, among many it searches. */
async function inCode({ functions, queries, code, world }: ScriptedTask, send: Send): Promise<unknown> {
  if (world === 'small') await send('list_modules', {});
  else for (const [tool, query] of Object.entries(queries)) await find(send, nameOf(tool), query);
  for (const [module, names] of Object.entries(functions)) await send('module_info', { module, functions: names });
  return valueOf(await send('run_code', { code }));
}

function nameOf(tool: string): string {
  const [server = '', name] = tool.split('.');
  return name === undefined ? server : exposedName(server, name);
}

/** Counts each call and its result. `_meta` does not count: clients keep it from models. */
function metered({ workspace }: World, meter: CostMeter, send: Send): Send {
  return async (name, args) => {
    meter.add('calls', JSON.stringify({ name, arguments: args }), workspace);
    const { _meta, ...result } = await send(name, args);
    meter.add('results', JSON.stringify(result), workspace);
    if (result.isError === true) throw new Error(`${name}: ${textOf(result)}`);
    return result;
  };
}

function textOf({ content = [] }: Pick<ToolResult, 'content'>): string {
  return content.map(({ text }) => (typeof text === 'string' ? text : '')).join('\n');
}

/** Returns the value that a program would use. */
function valueOf(result: ToolResult): unknown {
  if (result.structuredContent !== undefined) return result.structuredContent;
  const text = textOf(result);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
