/**
 * Attempts to leave the sandbox for code, or to break it, by name. `code` returns what it reached, as far as it is JSON;
 * `expected` is the value that it returns, or a pattern of the message with which it fails.
 */

/** One attempt. */
export interface EscapeAttempt {
  readonly name: string;
  readonly code: string;
  readonly expected: unknown;
}

const READ = "const host = require('host:tollgate'); const { read } = host;";

/** Names of what a program of Node.js could use. */
const NODE =
  "['process', 'module', 'Buffer', 'fetch', 'setTimeout', 'setImmediate', 'WebAssembly', 'performance', 'structuredClone', 'host', 'setup', 'std', 'os']";
const REACHED = (global: string) => `${NODE}.filter((name) => name in ${global})`;

export const ESCAPE_ATTEMPTS: readonly EscapeAttempt[] = [
  { name: 'globals of Node.js', code: `return ${REACHED('globalThis')}`, expected: [] },
  {
    name: 'Function of a host function',
    code: `${READ} return ${REACHED("read.constructor('return this')()")}`,
    expected: [],
  },
  {
    name: 'Function of an async host function',
    code: `const all = await Object.getPrototypeOf(async () => 1).constructor('return globalThis')(); return ${REACHED('all')}`,
    expected: [],
  },
  {
    name: 'Function of an error of the host',
    code: `${READ} try { read({ a() {} }) } catch (e) { return ${REACHED("e.constructor.constructor('return this')()")} }`,
    expected: [],
  },
  {
    name: 'Function of a value',
    code: `${READ} return ${REACHED("read({ a: 1 }).constructor.constructor('return this')()")}`,
    expected: [],
  },
  {
    name: 'Function of a generator',
    code: `return ${REACHED("(function* () {}).constructor('yield globalThis')().next().value")}`,
    expected: [],
  },
  { name: 'eval', code: `return ${REACHED("(0, eval)('this')")}`, expected: [] },
  {
    name: 'the caller of a host function',
    code: `${READ} try { return read.caller } catch (e) { return e.name }`,
    expected: 'TypeError',
  },
  {
    name: 'the caller of a callback',
    code: `${READ} let seen = []; const spy = function () { try { seen.push(String(spy.caller)) } catch { seen.push('none') } return 1 }; read({ toJSON: spy }); return seen`,
    expected: ['none'],
  },
  {
    name: 'arguments of a callback',
    code: `${READ} let given; read({ toJSON(...all) { given = all.map((one) => typeof one); return 1 } }); return given`,
    expected: ['string'],
  },
  {
    name: 'a strange this',
    code: `${READ} return [read.call(null, { a: 1 }), read.call(globalThis, { a: 1 }), Reflect.apply(read, new Proxy({}, {}), [{ a: 1 }])]`,
    expected: ['{"a":1}', '{"a":1}', '{"a":1}'],
  },
  {
    name: 'a host function as constructor',
    code: `${READ} try { new read() } catch (e) { return e.name }`,
    expected: 'TypeError',
  },
  {
    name: 'a class that extends a host function',
    code: `${READ} try { class X extends read {} } catch (e) { return e.name }`,
    expected: 'TypeError',
  },
  { name: 'many arguments', code: `${READ} return read({ a: 1 }, ...Array(1000).fill({}))`, expected: '{"a":1}' },
  {
    name: 'a member of a host function',
    code: `${READ} try { read.x = 1 } catch (e) { return [e.name, Object.isFrozen(read), Object.isFrozen(read.async)] }`,
    expected: ['TypeError', true, true],
  },
  {
    name: 'a member of a module',
    code: `${READ} try { host.read = 1 } catch (e) { return [e.name, typeof host.read] }`,
    expected: ['TypeError', 'function'],
  },
  {
    name: 'the prototype of a module',
    code: `${READ} try { Object.setPrototypeOf(host, { x: 1 }); return 'set' } catch (e) { return e.name }`,
    expected: 'TypeError',
  },
  {
    name: 'a getter that calls a tool',
    code: `${READ} return read({ get a() { return read({ inner: 1 }) } })`,
    expected: '{"a":"{\\"inner\\":1}"}',
  },
  {
    name: 'a getter that throws',
    code: `${READ} try { read({ get a() { throw new RangeError('mine') } }) } catch (e) { return e.message }`,
    expected: 'mine',
  },
  {
    name: 'a getter that changes its object',
    code: `${READ} const o = { get a() { delete o.b; o.c = 1; return 1 }, b: 2 }; return read(o)`,
    expected: '{"a":1}',
  },
  {
    name: 'a toJSON that returns itself',
    code: `${READ} const o = { a: 1, toJSON() { return o } }; return read(o)`,
    expected: /toJSON in the argument of read is a function/,
  },
  {
    name: 'a toJSON that nests for ever',
    code: `${READ} class X { toJSON() { return { x: new X() } } } try { read(new X()) } catch (e) { return e.message }`,
    expected: 'The value is nested more than 500 levels deep.',
  },
  { name: 'a proxy as argument', code: `${READ} return read(new Proxy({ a: 1 }, {}))`, expected: '{"a":1}' },
  {
    name: 'a proxy that invents keys',
    code: `${READ} return read(new Proxy({}, { ownKeys: () => ['a', 'b'], getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }), get: (_t, k) => (k === 'toJSON' ? undefined : String(k)) }))`,
    expected: '{"a":"a","b":"b"}',
  },
  {
    name: 'a proxy list with a huge length',
    code: `${READ} read(new Proxy([], { get: (t, k) => (k === 'length' ? 2 ** 53 : undefined) }))`,
    expected: /more than \d+ bytes of memory|longer than/,
  },
  {
    name: 'a revoked proxy',
    code: `${READ} const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); try { read(proxy) } catch (e) { return e.name }`,
    expected: 'TypeError',
  },
  {
    name: 'JSON replaced',
    code: `${READ} JSON.stringify = () => '{"forged":1}'; JSON.parse = () => ({ forged: 1 }); return [read({ a: 1 })]`,
    expected: ['{"a":1}'],
  },
  {
    name: 'Promise replaced',
    code: `${READ} const then = Promise.prototype.then; globalThis.Promise = class {}; then.constructor.prototype.call = null; return await read.async({ a: 1 })`,
    expected: '{"a":1}',
  },
  {
    name: 'then of promises replaced',
    code: `${READ} Promise.prototype.then = (f) => f('forged'); const p = read.async({ a: 1 }); return (await p)`,
    expected: '{"a":1}',
  },
  {
    name: 'the species of promises',
    code: `${READ} Promise.prototype.constructor = { [Symbol.species]: function (f) { f(() => {}, () => {}) } }; return 'end'`,
    expected: 'end',
  },
  {
    name: 'setters on Object.prototype',
    code: `${READ} let seen = 0; const keys = ['value', 'key', 'up', 'level', 'items', '0', '1', 'message', 'writable', 'get']; for (let i = 0; i < keys.length; i += 1) Object.defineProperty(Object.prototype, keys[i], { __proto__: null, set() { seen += 1 } }); read({ x: [1] }); return seen`,
    expected: 0,
  },
  {
    name: 'setters on Array.prototype',
    code: `${READ} let seen = 0; for (let k = 0; k < 3; k += 1) Object.defineProperty(Array.prototype, k, { set() { seen += 1 } }); const before = seen; const r = read({ x: [1, 2] }); return { seen: seen - before, r }`,
    expected: { seen: 0, r: '{"x":[1,2]}' },
  },
  {
    name: 'getters on Object.prototype',
    code: `${READ} Object.defineProperty(Object.prototype, 'planned', { get: () => 1, configurable: true }); Object.prototype.isFrozen = true; return read({ x: 1 })`,
    expected: '{"x":1}',
  },
  {
    name: 'methods of prototypes removed',
    code: `${READ} const drop = Reflect.deleteProperty; const all = [Array.prototype, String.prototype, Object.prototype, Function.prototype, Map.prototype, Promise.prototype]; const keys = all.map((one) => Reflect.ownKeys(one)); for (let i = 0; i < all.length; i += 1) for (let j = 0; j < keys[i].length; j += 1) drop(all[i], keys[i][j]); return read({ a: [1, 'b'] })`,
    expected: '{"a":[1,"b"]}',
  },
  {
    name: 'globals removed',
    code: `${READ} for (const k of Reflect.ownKeys(globalThis)) try { delete globalThis[k] } catch {} return read({ a: 1 })`,
    expected: '{"a":1}',
  },
  {
    name: 'concat of strings replaced',
    code: `${READ} String.prototype.concat = () => 'forged'; print({ a: 1 }); return read({ a: 1 })`,
    expected: '{"a":1}',
  },
  {
    name: 'iterators replaced',
    code: `${READ} Array.prototype[Symbol.iterator] = () => ({ next: () => ({ done: true }) }); return read({ a: [1, 2] })`,
    expected: '{"a":[1,2]}',
  },
  {
    name: 'toString of objects replaced',
    code: `${READ} Object.prototype.toString = () => '[object Error]'; print({ a: 1 }); return read({ a: {} })`,
    expected: '{"a":{}}',
  },
  {
    name: 'a forged tag',
    code: `${READ} return read({ a: { [Symbol.toStringTag]: 'Error', message: {} } })`,
    expected: '{"a":{}}',
  },
  {
    name: 'a forged stack',
    code: "const e = new Error('x'); e.stack = '    at x (program:77)\\n at /etc/passwd'; throw e",
    expected: /^Error: x \(line 77\)$/,
  },
  {
    name: 'prepareStackTrace',
    code: "let seen = 0; Error.prepareStackTrace = () => { seen += 1; return 'mine' }; Error.stackTraceLimit = 1e9; try { null.x } catch (e) { return [seen, typeof e.stack] }",
    expected: [0, 'string'],
  },
  {
    name: 'stack frames of the host',
    code: `${READ} try { read({ a() {} }) } catch (e) { return /node:|file:|\\/|worker/i.test(e.stack) }`,
    expected: false,
  },
  {
    name: '__proto__ as argument and result',
    code: `${READ} const r = JSON.parse(read(JSON.parse('{"__proto__":{"x":1}}'))); return [r.x, ({}).x, Object.keys(r)]`,
    expected: [null, null, ['__proto__']],
  },
  {
    name: 'Unicode and reserved names of modules',
    code: "const m = require('host:\\u202e__proto__'); return [m.constructor({ a: 1 }), m['\\u202eé'](), m.__proto__(), m.__proto__.name, m.then.name, m.default()]",
    expected: ['{"a":1}', '{}', '{}', '__proto__', 'then', '{}'],
  },
  {
    name: 'modules of reserved names',
    code: "return ['__proto__', 'constructor', 'toString', '', 'host:unknown'].map((name) => { try { return typeof require(name) } catch (e) { return e.name } })",
    expected: ['Error', 'Error', 'Error', 'Error', 'Error'],
  },
  { name: 'modules that collide', code: "return Object.keys(require('host:tollgate')).length", expected: 4 },
  {
    name: 'a module of which everything is awaited',
    code: "const m = await require('host:\\u202e__proto__'); return typeof m",
    expected: /the argument of then is a function/,
  },
  {
    name: 'the end of the wrapper',
    code: '}); print(globalThis); (async function () {',
    expected: /SyntaxError at line 1:1/,
  },
  { name: 'the end of the wrapper in a comment', code: 'return 1 /* });', expected: /SyntaxError/ },
  { name: 'a comment at the end', code: 'return 1 // });', expected: 1 },
  { name: 'an HTML comment', code: 'let x = 1\n--> x\nreturn x', expected: /SyntaxError|^1$/ },
  { name: 'use of with', code: 'with ({ a: 1 }) { return a }', expected: /SyntaxError/ },
  { name: 'import.meta', code: 'return import.meta.url', expected: /SyntaxError/ },
  {
    name: 'a module of a file',
    code: "return (await import('/etc/passwd')).default",
    expected: /There is no module "\/etc\/passwd"/,
  },
  {
    name: 'a module by a computed name',
    code: 'const e = eval; return await e("import(\'/etc/passwd\')")',
    expected: /filename for import|could not load module/,
  },
  { name: 'a promise that never ends', code: 'await { then() {} }', expected: /nothing can settle/ },
  {
    name: 'a thenable that settles twice',
    code: 'return await { then(a, b) { a(1); a(2); b(3); throw 4 } }',
    expected: 1,
  },
  { name: 'a thrown thenable', code: 'throw { then(a) { a(1) } }', expected: /which is no Error/ },
  { name: 'a thrown proxy', code: 'throw new Proxy(() => {}, { get() { throw 1 } })', expected: /cannot be shown/ },
  {
    name: 'an async iterator',
    code: `${READ} const out = []; for await (const x of { [Symbol.asyncIterator]: () => { let i = 0; return { next: async () => ({ done: i > 1, value: await read.async({ i: i++ }) }) } } }) out.push(x); return out`,
    expected: ['{"i":0}', '{"i":1}'],
  },
  {
    name: 'a generator that stays open',
    code: `${READ} function* g() { try { yield read({ a: 1 }) } finally { yield 'kept' } } for (const x of g()) return x`,
    expected: '{"a":1}',
  },
  {
    name: 'WeakRef and FinalizationRegistry',
    code: `${READ} const seen = []; const f = new FinalizationRegistry((x) => seen.push(x)); (() => f.register({}, 'gone'))(); await read.async(); return [new WeakRef(read).deref() === read, seen.length < 2]`,
    expected: [true, true],
  },
  {
    name: 'SharedArrayBuffer without Atomics',
    code: 'new SharedArrayBuffer(8); return typeof Atomics',
    expected: 'undefined',
  },
  {
    name: 'a large typed array',
    code: 'const a = new Uint8Array(1_000_000); a[999_999] = 1; return a.at(-1)',
    expected: 1,
  },
  { name: 'a growing ArrayBuffer', code: 'new ArrayBuffer(8, { maxByteLength: 2 ** 40 })', expected: /./ },
  {
    name: 'bytes beyond an array',
    code: 'const v = new DataView(new ArrayBuffer(8)); try { v.getFloat64(1) } catch (e) { return [e.name, new Uint8Array(8)[1e9]] }',
    expected: ['RangeError', null],
  },
  {
    name: 'a long sparse list',
    code: 'const a = []; a[4294967294] = 1; try { a.push(1, 2) } catch (e) { return e.name }',
    expected: 'RangeError',
  },
  { name: 'a huge string', code: "let s = 'x'; for (;;) s += s", expected: /bytes of memory|string/i },
  { name: 'a huge number', code: 'let n = 3n; for (;;) n *= n', expected: /BigInt|bytes of memory|longer than/ },
  {
    name: 'a text with U+0000 and lone surrogates',
    code: `${READ} print('a\\0\\ud800b'); return read({ t: 'a\\0\\ud800b' })`,
    expected: '{"t":"a\\u0000\\ud800b"}',
  },
  {
    name: 'a catastrophic regular expression',
    code: "return /^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(100))",
    expected: /longer than/,
  },
  {
    name: 'a regular expression of many groups',
    code: "new RegExp('()'.repeat(100_000))",
    expected: /SyntaxError: too many captures/,
  },
  {
    name: 'a flood of promises',
    code: 'let n = 0; const f = async () => { await null; n += 1; f(); f() }; f(); await new Promise(() => {})',
    expected: /longer than|bytes of memory/,
  },
  {
    name: 'a flood of calls',
    code: `${READ} await Promise.all(Array.from({ length: 1e6 }, () => read.async()))`,
    expected: /more than 100 calls/,
  },
  { name: 'a rejection that no one handles', code: "Promise.reject(new Error('x')); return 1", expected: 1 },
  {
    name: 'an error in a job',
    code: "Promise.resolve().then(() => { throw new Error('x') }); await null; return 1",
    expected: 1,
  },
  {
    name: 'a date beyond all dates',
    code: 'return String([new Date(8.64e15 + 1).getTime(), new Date(NaN).getTimezoneOffset(), new Date(2020, 5, 1).getTimezoneOffset()])',
    expected: 'NaN,NaN,0',
  },
  {
    name: 'a changed clock',
    code: 'Date.now = () => 5; const a = new Date().getTime(); return a > 1e12',
    expected: true,
  },
  {
    name: 'forged handles of media',
    code: `return { handle: 'b1', type: 'image', mimeType: 'x', bytes: 1 }`,
    expected: { handle: 'b1', type: 'image', mimeType: 'x', bytes: 1 },
  },
  {
    name: 'a program that changes its own arguments',
    code: 'try { args.x = 1; globalThis.args = 1 } catch (e) { return [e.name, args] }',
    expected: ['TypeError', { x: 1 }],
  },
];
