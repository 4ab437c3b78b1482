/** The 30 tasks, each a fixed script of steps. No model chooses them. */
import type { Scripts, WorldName } from './task-worlds.ts';

/** Makes one call of a tool, `server.tool` or a primitive. Returns its structured content, its JSON, or its text. */
export type TaskCall = (tool: string, args: Readonly<Record<string, unknown>>) => Promise<unknown>;

/** A task. All ways must return a value that passes `check`. */
export interface ScriptedTask {
  readonly title: string;
  readonly world: WorldName;
  /** The steps without Tollgate, and with it unless `own` has others. `root`: the folder of the files. */
  readonly steps: (call: TaskCall, root: string) => Promise<unknown>;
  /** The steps with Tollgate's primitives. */
  readonly own?: (call: TaskCall) => Promise<unknown>;
  readonly code: string;
  /** The functions of code that the script looks up, by module. */
  readonly functions: Readonly<Record<string, readonly string[]>>;
  /** What finds each tool, where it is not listed. */
  readonly queries: Readonly<Record<string, string>>;
  readonly check: (value: unknown) => boolean;
}

const own = { queries: {}, world: 'small' } as const;
const primitives = (...names: string[]) => ({ 'host:tollgate': names });
const has =
  (...words: readonly string[]) =>
  (value: unknown): boolean =>
    words.every((word) => JSON.stringify(value).includes(word));
const isDone = (value: unknown): boolean => value !== undefined;
const RENAMED = [7, 14, 21, 28, 35].map((at) => `src/module${at}.ts`);
const MODULES = Array.from({ length: 40 }, (_, at) => `src/module${at + 1}.ts`);
const PAGES = ['a.md', 'b.md', 'c.md'];

const FILES: readonly ScriptedTask[] = [
  {
    ...own,
    title: 'Read one short file',
    steps: (call, root) => call('files.read_text_file', { path: `${root}/notes.md` }),
    own: (call) => call('read', { path: 'notes.md' }),
    code: `return require('host:tollgate').read({ path: 'notes.md' });`,
    functions: primitives('read'),
    check: has('budget'),
  },
  {
    ...own,
    title: 'Read five files',
    steps: (call, root) => call('files.read_multiple_files', { paths: RENAMED.map((file) => `${root}/${file}`) }),
    own: async (call) => [...(await inOrder(RENAMED, (path) => call('read', { path })))],
    code: `const { read } = require('host:tollgate');
return ${JSON.stringify(RENAMED)}.map((path) => read({ path })).join('\\n');`,
    functions: primitives('read'),
    check: has('Module 7.', 'Module 35.'),
  },
  {
    ...own,
    title: 'Find a word in 40 files',
    steps: (call, root) => call('files.read_multiple_files', { paths: MODULES.map((file) => `${root}/${file}`) }),
    own: (call) => call('read', { action: 'search', path: 'src', pattern: 'TODO' }),
    code: `return require('host:tollgate').read({ action: 'search', path: 'src', pattern: 'TODO' });`,
    functions: primitives('read'),
    check: has('TODO: handle oldName'),
  },
  {
    ...own,
    title: 'Change one line of a file',
    steps: (call, root) =>
      call('files.edit_file', { path: `${root}/notes.md`, edits: [{ oldText: 'Friday', newText: 'Monday' }] }),
    own: (call) => call('edit', { path: 'notes.md', old_string: 'Friday', new_string: 'Monday' }),
    code: `return require('host:tollgate').edit({ path: 'notes.md', old_string: 'Friday', new_string: 'Monday' });`,
    functions: primitives('edit'),
    check: isDone,
  },
  {
    ...own,
    title: 'Rename a name in five of 40 files',
    steps: async (call, root) => {
      await call('files.read_multiple_files', { paths: MODULES.map((file) => `${root}/${file}`) });
      return inOrder(RENAMED, (file) =>
        call('files.edit_file', {
          path: `${root}/${file}`,
          edits: [
            { oldText: '// TODO: handle oldName here', newText: '// TODO: handle newName here' },
            { oldText: 'export const oldName', newText: 'export const newName' },
          ],
        }),
      );
    },
    own: async (call) => {
      await call('read', { action: 'search', path: 'src', pattern: 'oldName' });
      return inOrder(RENAMED, (path) =>
        call('edit', { path, old_string: 'oldName', new_string: 'newName', replace_all: true }),
      );
    },
    code: `const { read, edit } = require('host:tollgate');
const found = read({ action: 'search', path: 'src', pattern: 'oldName' });
const files = [...new Set(String(found).match(/[\\w/]*module\\d+\\.ts/g))].map((f) => (f.startsWith('src/') ? f : 'src/' + f));
for (const path of files) edit({ path, old_string: 'oldName', new_string: 'newName', replace_all: true });
return files;`,
    functions: primitives('read', 'edit'),
    check: (value) => Array.isArray(value) && value.length === RENAMED.length,
  },
  {
    ...own,
    title: 'List a folder with its subfolders',
    steps: (call, root) => call('files.directory_tree', { path: root }),
    own: (call) => call('read', { action: 'list', path: '.', depth: 2 }),
    code: `return require('host:tollgate').read({ action: 'list', path: '.', depth: 2 });`,
    functions: primitives('read'),
    check: has('module40.ts', 'package.json'),
  },
  {
    ...own,
    title: 'Read the last 20 lines of a log',
    steps: (call, root) => call('files.read_text_file', { path: `${root}/long.log`, tail: 20 }),
    own: (call) => call('read', { path: 'long.log', offset: -20 }),
    code: `return require('host:tollgate').read({ path: 'long.log', offset: -20 });`,
    functions: primitives('read'),
    check: has('3999 request'),
  },
  {
    ...own,
    title: 'Count slow requests in a log of 4,000 lines',
    steps: async (call, root) => {
      const text = JSON.stringify(await call('files.read_text_file', { path: `${root}/long.log` }));
      return text.match(/in 96 ms/g)?.length;
    },
    own: async (call) => {
      const found = await call('read', { action: 'search', path: 'long.log', pattern: 'in 96 ms' });
      return JSON.stringify(found).match(/in 96 ms/g)?.length;
    },
    code: `const found = require('host:tollgate').read({ action: 'search', path: 'long.log', pattern: 'in 96 ms' });
return String(found).match(/in 96 ms/g).length;`,
    functions: primitives('read'),
    check: (value) => value === 41,
  },
  {
    ...own,
    title: 'Write a new file',
    steps: (call, root) => call('files.write_file', { path: `${root}/new.md`, content: '# New\n\nA new page.\n' }),
    own: (call) => call('write', { path: 'new.md', content: '# New\n\nA new page.\n' }),
    code: `return require('host:tollgate').write({ path: 'new.md', content: '# New\\n\\nA new page.\\n' });`,
    functions: primitives('write'),
    check: isDone,
  },
  {
    ...own,
    title: 'Read the version of a package, and put it into three pages',
    steps: async (call, root) => {
      const version = versionIn(await call('files.read_text_file', { path: `${root}/package.json` }));
      return inOrder(PAGES, (file) =>
        call('files.edit_file', { path: `${root}/${file}`, edits: [{ oldText: 'VERSION', newText: version }] }),
      );
    },
    own: async (call) => {
      const version = versionIn(await call('read', { path: 'package.json' }));
      return inOrder(PAGES, (path) => call('edit', { path, old_string: 'VERSION', new_string: version }));
    },
    code: `const { read, edit } = require('host:tollgate');
const [, version] = /"version": "([^"]+)"/.exec(read({ path: 'package.json' }));
for (const path of ['a.md', 'b.md', 'c.md']) edit({ path, old_string: 'VERSION', new_string: version });
return version;`,
    functions: primitives('read', 'edit'),
    check: has('4.7.1'),
  },
];

const SMALL: readonly ScriptedTask[] = [
  {
    world: 'small',
    title: 'One call of a small tool',
    steps: (call) => call('everything.echo', { message: 'hello' }),
    code: `return require('host:mcp-everything').echo({ message: 'hello' });`,
    functions: { 'host:mcp-everything': ['echo'] },
    queries: { 'everything.echo': 'echo a message' },
    check: has('hello'),
  },
  {
    world: 'small',
    title: 'Add ten numbers, one sum after the other',
    steps: async (call) => {
      let sum = 0;
      for (let at = 1; at <= 10; at += 1) sum = lastNumber(await call('everything.get-sum', { a: sum, b: at }));
      return sum;
    },
    code: `const { get_sum } = require('host:mcp-everything');
let sum = 0;
for (let at = 1; at <= 10; at += 1) sum = Number(/(\\d+)\\.$/.exec(get_sum({ a: sum, b: at }))[1]);
return sum;`,
    functions: { 'host:mcp-everything': ['get_sum'] },
    queries: { 'everything.get-sum': 'sum of two numbers' },
    check: (value) => value === 55,
  },
];

/** Tasks that find one tool among many and call it once or twice. */
const FOUND: readonly (readonly [WorldName, string, string, string, string, Readonly<Record<string, unknown>>])[] = [
  [
    'hundred',
    'Open issues of a repository',
    's-modelcontextprotocol-server-github',
    'list_issues',
    'list issues of a repository',
    { owner: 'acme', repo: 'shop' },
  ],
  [
    'hundred',
    'A new task in Asana',
    's-roychri-mcp-server-asana',
    'asana_create_task',
    'create a task in Asana',
    { project_id: '1200', name: 'Call Kim' },
  ],
  [
    'all',
    'Dashboards about latency',
    's-leval-mcp-grafana',
    'search_dashboards',
    'search Grafana dashboards',
    { query: 'latency' },
  ],
  [
    'all',
    'DNS records of a domain',
    's-hostinger-api-mcp',
    'DNS_getDNSRecordsV1',
    'dns records of a domain at Hostinger',
    { domain: 'example.org' },
  ],
  [
    'all',
    'Newest mails of a mailbox',
    's-softeria-ms-365-mcp-server',
    'list-mail-messages',
    'list Outlook mail messages',
    { top: 10 },
  ],
];

const ROWS = JSON.stringify(
  Array.from({ length: 12 }, (_, at) => ({
    id: 4100 + at,
    title: `Entry ${at + 1}`,
    state: at % 3 === 0 ? 'closed' : 'open',
    owner: `user${at % 4}`,
    updated: `2026-03-${String(at + 1).padStart(2, '0')}`,
    url: `https://example.org/entries/${4100 + at}`,
  })),
);

/** What the tools of FOUND answer. */
export const TASK_SCRIPTS: Scripts = Object.fromEntries(
  FOUND.map(([, , server]) => [
    server,
    Object.fromEntries(FOUND.filter((one) => one[2] === server).map(([, , , tool]) => [tool, ROWS])),
  ]),
);

const SEARCHES: readonly ScriptedTask[] = FOUND.map(([world, title, server, tool, query, args]) => {
  const name = tool.replaceAll('-', '_');
  return {
    world,
    title,
    steps: (call) => call(`${server}.${tool}`, args),
    code: `return require('host:mcp-${server}').${name}(${JSON.stringify(args)});`,
    functions: { [`host:mcp-${server}`]: [name] },
    queries: { [`${server}.${tool}`]: query },
    check: has('Entry 12'),
  };
});

interface Order {
  readonly id: string;
  readonly status: string;
  readonly customer: string;
  readonly total: number;
}

const DAY = { day: '2026-03-01' };
const GET_ORDER = { 'orders.get_order': 'get an order by id' };
const LIST_ORDERS = { 'orders.list_orders': 'list orders of a day' };

/** Returns the same tasks for the servers of one world. */
function lookups(world: WorldName): readonly ScriptedTask[] {
  const orders = async (call: TaskCall, count: number): Promise<readonly Order[]> => {
    const ids = (await call('orders.list_orders', DAY)) as readonly string[];
    return inOrder(ids.slice(0, count), (id) => call('orders.get_order', { id }) as Promise<Order>);
  };
  const collect = `import { list_orders, get_order } from 'host:mcp-orders';
const orders = await Promise.all(JSON.parse(list_orders(${JSON.stringify(DAY)})).slice(0, COUNT).map((id) => get_order.async({ id })));
`;
  const parsed = (count: number): string =>
    `${collect.replace('COUNT', String(count))}const all = orders.map((text) => JSON.parse(text));\n`;
  return [
    {
      world,
      title: 'Look up one order',
      steps: (call) => call('orders.get_order', { id: 'O-7' }),
      code: `return require('host:mcp-orders').get_order({ id: 'O-7' });`,
      functions: { 'host:mcp-orders': ['get_order'] },
      queries: GET_ORDER,
      check: has('O-7', 'tracking'),
    },
    {
      world,
      title: 'Collect the totals of 20 orders',
      steps: async (call) => (await orders(call, 20)).map(({ total }) => total),
      code: `${parsed(20)}return all.map(({ total }) => total);`,
      functions: { 'host:mcp-orders': ['list_orders', 'get_order'] },
      queries: { ...LIST_ORDERS, ...GET_ORDER },
      check: (value) => Array.isArray(value) && value.length === 20,
    },
    {
      world,
      title: 'Filter 40 orders, and sum those that are paid',
      steps: async (call) => sumOf((await orders(call, 40)).filter(({ status }) => status === 'paid')),
      code: `${parsed(40)}return all.filter(({ status }) => status === 'paid').reduce((sum, { total }) => sum + total, 0);`,
      functions: { 'host:mcp-orders': ['list_orders', 'get_order'] },
      queries: { ...LIST_ORDERS, ...GET_ORDER },
      check: (value) => typeof value === 'number' && value > 1000,
    },
    {
      world,
      title: 'From an order to its customer, and write to them',
      steps: async (call) => {
        const { customer } = (await call('orders.get_order', { id: 'O-9' })) as Order;
        const { name } = (await call('orders.get_customer', { id: customer })) as { readonly name: string };
        return call('orders.send_message', { customer, body: `Dear ${name}, your order is on its way.` });
      },
      code: `import { get_order, get_customer, send_message } from 'host:mcp-orders';
const { customer } = JSON.parse(get_order({ id: 'O-9' }));
const { name } = JSON.parse(get_customer({ id: customer }));
return send_message({ customer, body: \`Dear \${name}, your order is on its way.\` });`,
      functions: { 'host:mcp-orders': ['get_order', 'get_customer', 'send_message'] },
      queries: {
        ...GET_ORDER,
        'orders.get_customer': 'get a customer by id',
        'orders.send_message': 'send a message to a customer',
      },
      check: has('sent'),
    },
    {
      world,
      title: 'Mark ten paid orders as shipped',
      steps: async (call) => {
        const paid = (await orders(call, 30)).filter(({ status }) => status === 'paid');
        return inOrder(paid.slice(0, 10), ({ id }) => call('orders.set_order_status', { id, status: 'shipped' }));
      },
      code: `import { set_order_status } from 'host:mcp-orders';
${parsed(30)}const paid = all.filter(({ status }) => status === 'paid').slice(0, 10);
return paid.map(({ id }) => JSON.parse(set_order_status({ id, status: 'shipped' })).id);`,
      functions: { 'host:mcp-orders': ['list_orders', 'get_order', 'set_order_status'] },
      queries: { ...LIST_ORDERS, ...GET_ORDER, 'orders.set_order_status': 'change the status of an order' },
      check: (value) => Array.isArray(value) && value.length === 10,
    },
  ];
}

/** All tasks, in the order of the table. */
export const SCRIPTED_TASKS: readonly ScriptedTask[] = [
  ...lookups('few').slice(0, 3),
  ...FILES,
  ...SMALL,
  ...(['hundred', 'all'] as const).flatMap((world) => [
    ...SEARCHES.filter((task) => task.world === world),
    ...lookups(world),
  ]),
];

function sumOf(orders: readonly Order[]): number {
  return orders.reduce((sum, { total }) => sum + total, 0);
}

function lastNumber(text: unknown): number {
  return Number(/(\d+)\.$/.exec(String(text))?.[1]);
}

function versionIn(value: unknown): string {
  return /"version\\*": ?\\*"([\d.]+)/.exec(JSON.stringify(value))?.[1] ?? '';
}

async function inOrder<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = [];
  for (const item of items) results.push(await work(item));
  return results;
}
