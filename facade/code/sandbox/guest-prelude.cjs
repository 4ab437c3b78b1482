/**
 * The part of the sandbox that runs inside QuickJS, before the program and next to it. guest.ts wraps this text in a
 * strict function with the parameters `host` (functions that take and return texts and numbers) and `setup` (JSON).
 *
 * A program may change every global and every prototype. So this code takes what it needs at the beginning, calls it
 * directly, and reads no property of a prototype afterwards: no methods of arrays, no iteration, no spread. Templates
 * are not used either, because QuickJS looks up `String.prototype.concat` for them.
 */
/* global host, setup */

const { parse: parseJson, stringify: quote } = JSON;
const { defineProperty, freeze, keys: keysOf, hasOwn } = Object;
const { isArray } = Array;
const { apply } = Reflect;
const { isFinite } = Number;
const { toString: tagOf } = Object.prototype;
const NewMap = Map;
const NewPromise = Promise;
const NewProxy = Proxy;
const TypeFault = TypeError;
const PlainError = Error;

const { modules, hasArgs, hasVars } = parseJson(setup);

/** Deeper values are refused in arguments, and shortened where they are printed. */
const MOST_LEVELS = 500;

/** How to write instead what JSON cannot hold, by the tag of the value. */
const INSTEAD = {
  __proto__: null,
  '[object Promise]': 'a promise: put `await` before it',
  '[object Map]': 'a Map: use Object.fromEntries(map)',
  '[object Set]': 'a Set: use [...set]',
};

/** Returns a place in a value. It inherits nothing, because programs may define members of all objects. */
function placeIn(up, key) {
  return { __proto__: null, up, key, level: up === undefined ? 0 : up.level + 1, value: undefined };
}

/** Returns a TypeError with a path such as `items[0].name`. A place has its key, and the place around it in `up`. */
function fault(at, what) {
  let path = '';
  let place = at;
  for (; place.up !== undefined; place = place.up) {
    const isFirst = path === '' || path[0] === '[';
    path = (typeof place.key === 'number' ? '[' + place.key + ']' : place.key) + (isFirst ? path : '.' + path);
  }
  const where = path === '' ? place.key : path + ' in ' + place.key;
  return new TypeFault(where + ' is ' + what + '. Only plain JSON values can be passed on.');
}

function isInside(value, at) {
  for (let place = at.up; place !== undefined; place = place.up) if (place.value === value) return true;
  return false;
}

/** Returns the value that JSON uses instead: that of `toJSON`, and name and message of an error. */
function plainOf(value, key) {
  if (typeof value.toJSON === 'function') return apply(value.toJSON, value, ['' + key]);
  if (apply(tagOf, value, []) !== '[object Error]') return value;
  return { name: textOf(value.name), message: textOf(value.message) };
}

function textOf(value) {
  return typeof value === 'string' ? value : undefined;
}

/**
 * Returns the JSON text of a value; undefined if there is none. Unlike JSON.stringify, throws a TypeError with the path
 * of a value that would be lost.
 */
function jsonOf(given, at) {
  const value = given !== null && typeof given === 'object' ? plainOf(given, at.key) : given;
  // A planned value is a function whose first use ends the run: reading a member is a use.
  if (typeof given === 'function') given.toJSON;
  switch (typeof value) {
    case 'string':
      return quote(value);
    case 'number':
      if (isFinite(value)) return quote(value);
      throw fault(at, value + ', which JSON cannot hold');
    case 'boolean':
      return value ? 'true' : 'false';
    case 'undefined':
      return undefined;
    case 'object':
      return value === null ? 'null' : jsonOfObject(value, at);
    case 'bigint':
      throw fault(at, 'a BigInt: use Number(value) or String(value)');
    default:
      throw fault(at, 'a ' + typeof value);
  }
}

function jsonOfObject(value, at) {
  const instead = INSTEAD[apply(tagOf, value, [])];
  if (instead !== undefined) throw fault(at, instead);
  if (isInside(value, at)) throw fault(at, 'a reference to an object around it (a cycle)');
  if (at.level > MOST_LEVELS) throw new TypeFault('The value is nested more than ' + MOST_LEVELS + ' levels deep.');
  at.value = value;
  let text = '';
  if (isArray(value)) {
    for (let index = 0; index < value.length; index += 1) {
      const item = jsonOf(value[index], placeIn(at, index)) ?? 'null';
      text += (index === 0 ? '' : ',') + item;
    }
    return '[' + text + ']';
  }
  const keys = keysOf(value);
  for (let index = 0; index < keys.length; index += 1) {
    const item = jsonOf(value[keys[index]], placeIn(at, keys[index]));
    if (item !== undefined) text += (text === '' ? '' : ',') + quote(keys[index]) + ':' + item;
  }
  return '{' + text + '}';
}

/** Returns a value as a person reads it: JSON where it is JSON. Throws what getters of the value throw. */
function readable(value, at) {
  switch (typeof value) {
    case 'string':
      return at.up === undefined ? value : quote(value);
    case 'bigint':
      return value + 'n';
    case 'function':
      return '[function ' + (textOf(value.name) || 'without a name') + ']';
    case 'symbol':
      return '[symbol]';
    case 'object':
      return value === null ? 'null' : readableObject(value, at);
    default:
      return '' + value;
  }
}

function readableObject(given, at) {
  const tag = apply(tagOf, given, []);
  if (tag === '[object Error]') return (textOf(given.name) ?? 'Error') + ': ' + (textOf(given.message) ?? '');
  if (INSTEAD[tag] !== undefined) return '[' + INSTEAD[tag] + ']';
  if (isInside(given, at)) return '[circular]';
  if (at.level > MOST_LEVELS) return '[deeper]';
  if (typeof given.toJSON === 'function')
    return readable(given.toJSON(), { __proto__: null, up: at.up, key: '', level: at.level + 1 });
  at.value = given;
  let text = '';
  if (isArray(given)) {
    for (let index = 0; index < given.length; index += 1)
      text += (index === 0 ? '' : ',') + readable(given[index], placeIn(at, ''));
    return '[' + text + ']';
  }
  const keys = keysOf(given);
  for (let index = 0; index < keys.length; index += 1) {
    const item = readable(given[keys[index]], placeIn(at, ''));
    text += (index === 0 ? '' : ',') + quote(keys[index]) + ':' + item;
  }
  return (tag === '[object Object]' ? '' : tag + ' ') + '{' + text + '}';
}

/** The value of a call in a dry run. Every use of it ends the run; it can be awaited, stored and passed on. */
function plannedValue(seq) {
  const use = () => {
    host.usePlanned(seq);
    throw new PlainError('The value of a planned call was used.');
  };
  const traps = { __proto__: null, get: (_target, key) => (key === 'then' ? undefined : use()) };
  const others = ['set', 'has', 'deleteProperty', 'apply', 'construct', 'ownKeys', 'getOwnPropertyDescriptor'];
  const more = ['defineProperty', 'getPrototypeOf', 'setPrototypeOf', 'isExtensible', 'preventExtensions'];
  for (let index = 0; index < others.length; index += 1) traps[others[index]] = use;
  for (let index = 0; index < more.length; index += 1) traps[more[index]] = use;
  return new NewProxy(function planned() {}, traps);
}

/** Returns the value of a call from the text that call-values.ts makes. */
function valueOf(text) {
  let parsed;
  try {
    parsed = parseJson(text);
  } catch {
    return { error: 'The result is nested too deeply.', code: 'UPSTREAM_INVALID' };
  }
  if (hasOwn(parsed, 'planned')) return plannedValue(parsed.planned);
  const { items, isList } = parsed;
  for (let index = 0; index < items.length; index += 1) {
    const item = items[index];
    items[index] = hasOwn(item, 'isFrozen') ? freeze(item.value) : item.value;
  }
  return isList ? items : items[0];
}

/** The functions that settle the promises of calls, by `seq`. */
const settlers = { __proto__: null };

function argumentsOf(input, name) {
  if (input === undefined) return '{}';
  return jsonOf(input, placeIn(undefined, 'the argument of ' + name)) ?? '{}';
}

function tooLarge(name) {
  return new TypeFault('The argument of ' + name + ' has more than 1,000,000 bytes as JSON. Send less in one call.');
}

/** Returns one function of a module. Methods are no constructors, and keep any name that a tool has. */
function functionOf(module, index, name) {
  const made = {
    __proto__: null,
    [name](input) {
      const text = host.call(module, index, argumentsOf(input, name));
      if (text === '') throw tooLarge(name);
      return valueOf(text);
    },
  };
  const variant = {
    async(input) {
      const seq = host.callAsync(module, index, argumentsOf(input, name));
      if (seq === 0) throw tooLarge(name);
      return new NewPromise((resolve) => {
        settlers[seq] = resolve;
      });
    },
  };
  const call = hasOwn(made, name) ? made[name] : undefined;
  defineProperty(call, 'async', { value: freeze(variant.async) });
  return freeze(call);
}

/** Members that the language and compiled imports look for. Other unknown members are errors. */
const QUIET = {
  __proto__: null,
  then: true,
  toJSON: true,
  constructor: true,
  prototype: true,
  valueOf: true,
  toString: true,
  $$typeof: true,
};

function moduleOf({ functions }, module) {
  const members = { __proto__: null };
  for (let index = 0; index < functions.length; index += 1) {
    const name = functions[index];
    if (!hasOwn(members, name))
      defineProperty(members, name, { value: functionOf(module, index, name), enumerable: true });
  }
  const made = new NewProxy(freeze(members), {
    __proto__: null,
    get(_target, key) {
      if (typeof key === 'symbol') return undefined;
      if (hasOwn(members, key)) return members[key];
      if (key === '__esModule') return true;
      if (key === 'default') return made;
      if (QUIET[key]) return undefined;
      throw new TypeFault(host.unknownMember(module, quote(key)));
    },
  });
  return made;
}

const byName = { __proto__: null };
for (let index = 0; index < modules.length; index += 1) {
  const { name } = modules[index];
  if (!hasOwn(byName, name)) defineProperty(byName, name, { value: moduleOf(modules[index], index) });
}

function require(name) {
  if (typeof name !== 'string') throw new TypeFault('require needs the name of a module as text.');
  if (hasOwn(byName, name)) return byName[name];
  throw new PlainError(host.unknownModule(quote(name)));
}

function print(...values) {
  let line = '';
  for (let index = 0; index < values.length; index += 1)
    line += (index === 0 ? '' : ' ') + readable(values[index], placeIn(undefined, ''));
  host.print(quote(line));
}

/** Defines a global. Constants can be neither changed nor hidden by another global. */
function define(name, value, isConstant) {
  defineProperty(globalThis, name, { value, writable: !isConstant, configurable: !isConstant });
}

define('require', require, false);
define('print', print, false);
define('console', { log: print, info: print, warn: print, error: print, debug: print }, false);
define('exports', {}, false);
const vars = hasVars ? parseJson(host.vars()) : undefined;
if (hasArgs) define('args', parseJson(host.args()), true);
if (hasVars) define('vars', vars, true);

/** Says what was thrown, as JSON. Only texts are taken from an error, because its members may be anything. */
function describe(thrown) {
  try {
    if (thrown === null || typeof thrown !== 'object' || typeof thrown.message !== 'string')
      return quote({ __proto__: null, value: readable(thrown, placeIn(placeIn(undefined, ''), '')) });
    const { name, message, stack } = thrown;
    return quote({ __proto__: null, name: textOf(name), message, stack: textOf(stack) });
  } catch {
    return '{"value":"a value that cannot be shown"}';
  }
}

/** Takes the answer to a call with `.async`. */
function settle(seq, text) {
  const resolve = settlers[seq];
  delete settlers[seq];
  resolve(valueOf(text));
}

/** Returns the result of the program as JSON: its value and its variables as texts, or why one is not JSON. */
function finish(returned) {
  try {
    const value = jsonOf(returned, placeIn(undefined, 'the returned value'));
    const variables = hasVars ? jsonOf(vars, placeIn(undefined, 'vars')) : undefined;
    return quote({ __proto__: null, value, variables });
  } catch (thrown) {
    return quote({ __proto__: null, thrown: describe(thrown) });
  }
}

host.ready(settle, finish, describe);
