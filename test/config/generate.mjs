/**
 * Generates the types and defaults of tollgate.yaml from its JSON Schema. `npm run generate` writes the files, and
 * test/config/generated.test.ts checks that they are up to date.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { compile } from 'json-schema-to-typescript';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const SCHEMA = 'facade/config/tollgate.schema.json';

const HEADER = `/**
 * The shape of tollgate.yaml as people write it, after its variables are filled in. The loader fills in defaults.
 * Generated from tollgate.schema.json by \`npm run generate\`; do not edit it.
 * A list has a hole where an entry was refused.
 */
`;

/** Characters of a comment's text per line. The formatter indents it afterwards, to at most 120 columns. */
const WIDTH = 104;

/** Names for parts that have no definition of their own in the schema. */
const PARTS = `
/** How the commands of the workspace run. */
export type WrittenBash = NonNullable<WrittenConfig['bash']>;
/** Where a secret comes from: one of the three. */
export type WrittenSecret = NonNullable<WrittenConfig['secrets']>[string];
/** The servers of one primitive: a name, or several routes in order. */
export type WrittenRoutes = NonNullable<Exclude<NonNullable<WrittenExpose['primitives']>, string>['read']>;
/** A policy with settings. */
export type WrittenPolicySettings = Exclude<WrittenPolicy, string>;
`;

/** Returns the path and content of every generated file. */
export async function generate() {
  const schema = JSON.parse(readFileSync(path.join(ROOT, SCHEMA), 'utf8'));
  return new Map([['facade/config/written-config.ts', await typesOf(schema)]]);
}

/** The loader replaces texts such as 30s by numbers. */
function withoutQuantityTexts(node) {
  if (Array.isArray(node)) return node.map(withoutQuantityTexts);
  if (typeof node !== 'object' || node === null) return node;
  const { pattern, ...rest } = node;
  if (Array.isArray(node.type) && node.type.join() === 'integer,string') return { ...rest, type: 'integer' };
  return Object.fromEntries(Object.entries(node).map(([key, inner]) => [key, withoutQuantityTexts(inner)]));
}

async function typesOf(schema) {
  const named = withoutTitles(withoutQuantityTexts(schema));
  named.title = 'WrittenConfig';
  for (const [name, definition] of Object.entries(named.definitions))
    definition.title = `Written${name[0].toUpperCase()}${name.slice(1)}`;
  const text = await compile(named, 'WrittenConfig', {
    bannerComment: '',
    format: false,
    ignoreMinAndMaxItems: true,
    unreachableDefinitions: true,
  });
  const { server, principal, profile } = schema.definitions;
  const defaults = {
    ...defaultsOf(schema.properties),
    server: defaultsOf(server.properties),
    principal: defaultsOf(principal.properties),
    profile: defaultsOf(profile.properties),
  };
  return format(
    'written-config.ts',
    `${HEADER}${withShortComments(readonly(text))}${PARTS}
/** The defaults of the settings that have one in the schema. The last three are those of each entry. */
export const DEFAULTS = ${JSON.stringify(defaults)} as const;
`,
  );
}

/** Returns the default of each property that has one, and those of its own properties. */
function defaultsOf(properties) {
  const found = Object.entries(properties).flatMap(([name, property]) => {
    const value = property.default ?? (property.properties && defaultsOf(property.properties));
    const isEmpty = value === undefined || (typeof value === 'object' && Object.keys(value).length === 0);
    return isEmpty ? [] : [[name, value]];
  });
  return Object.fromEntries(found);
}

/** Titles are for editors. The generator would make a type of each. */
function withoutTitles(node) {
  if (Array.isArray(node)) return node.map(withoutTitles);
  if (typeof node !== 'object' || node === null) return node;
  const kept = Object.entries(node).filter(([key, value]) => key !== 'title' || typeof value !== 'string');
  return Object.fromEntries(kept.map(([key, value]) => [key, withoutTitles(value)]));
}

/** Keeps the description of each setting, wrapped, without the remarks of the generator. */
function withShortComments(text) {
  return text.replaceAll(/^( *)\/\*\*\n([\s\S]*?)\*\/\n/gm, (_, indent, body) => {
    const [first = ''] = body.replaceAll(/^ *\* ?/gm, '').split('\n\n');
    if (first.trim() === '' || first.startsWith('This interface')) return '';
    const lines = [''];
    for (const word of first.trim().split(/\s+/)) {
      const line = lines.at(-1);
      if (line !== '' && line.length + 1 + word.length > WIDTH) lines.push(word);
      else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
    }
    return lines.length === 1
      ? `${indent}/** ${lines[0]} */\n`
      : `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join('')}${indent} */\n`;
  });
}

function readonly(text) {
  return text
    .replaceAll(/^(\s*)((?:[\w$]+|"[^"]+")\??:|\[k: string\]:)/gm, '$1readonly $2')
    .replaceAll(/((?:\([^()]*\)|[\w$]+|\{\})\[\])/g, 'readonly $1');
}

function format(name, text) {
  const biome = path.join(ROOT, 'node_modules/.bin/biome');
  return execFileSync(biome, ['format', `--stdin-file-path=${name}`], { cwd: ROOT, input: text, encoding: 'utf8' });
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [file, text] of await generate()) writeFileSync(path.join(ROOT, file), text);
