/**
 * Proves that the corpora suites work with any folder of the same layout. It builds a folder with a part of the cases,
 * new ids, another order and added cases, and runs the suites over it. Then it changes one verdict and empties a file:
 * the suites must fail and name the reason. Run `node test/corpora/variant.mjs`; TOLLGATE_SEED is the seed, default 1.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const project = path.join(import.meta.dirname, '..', '..');
const from = path.resolve(process.env.TOLLGATE_CORPORA ?? path.join(project, '..', 'shared', 'corpora'));
const seed = Number(process.env.TOLLGATE_SEED ?? 1);
const into = mkdtempSync(path.join(tmpdir(), 'tollgate-corpora-'));

/** Returns random numbers from 0 to 1 by the seed (mulberry32). */
let state = seed;
const random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};
const shuffled = (list) =>
  list
    .map((one) => [random(), one])
    .sort(([a], [b]) => a - b)
    .map(([, one]) => one);

const read = (file) => JSON.parse(readFileSync(path.join(from, file), 'utf8').replaceAll('{{+}}', ''));
const write = (file, value) => {
  mkdirSync(path.dirname(path.join(into, file)), { recursive: true });
  writeFileSync(path.join(into, file), JSON.stringify(value));
};

/** Returns a part of the cases with every kind in it, with other ids and in another order. */
function vary(cases, kindOf) {
  const kinds = new Map();
  const part = shuffled(cases).filter((one) => {
    const kind = kindOf(one);
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    return kinds.get(kind) <= 2 || random() < 0.1;
  });
  return part.map((one, at) => ({ ...one, id: `v${1000 + at}` }));
}

const KINDS = {
  poisoned_tools: (one) => `${one.basis} ${one.class}`,
  benign_tools: () => '',
  overt_malicious_tools: () => '',
  outputs: (one) => one.expected,
  approval_cases: (one) => one.class,
  argument_cases: (one) => `${one.kind} ${one.expected}`,
  path_cases: (one) => one.expected,
  egress_cases: (one) => `${one.kind} ${one.expected}`,
  wire_cases: (one) => `${one.direction} ${one.code}`,
};
const MORE = {
  path_cases: [
    {
      id: 'new-1',
      allowed: ['/srv/data'],
      path: '/srv/data/sub/../ok.txt',
      expected: 'allow',
      note: 'up and down inside',
    },
    { id: 'new-2', allowed: ['/srv/data'], path: '/srv/data/../other', expected: 'deny', note: 'up and out' },
  ],
  outputs: [
    { id: 'new-1', class: 'benign', expected: 'pass', content: [{ type: 'text', text: 'Two files were found.' }] },
  ],
  benign_tools: [
    {
      id: 'new-1',
      tool: {
        name: 'weather_today',
        description: 'Returns the weather of today.',
        inputSchema: { type: 'object', properties: { city: { type: 'string' } } },
      },
    },
  ],
  egress_cases: [
    {
      id: 'new-1',
      kind: 'CONNECT',
      request: 'not-on-the-list.test:443',
      resolve: null,
      expected: 'deny',
      note: 'a name that nobody allowed',
    },
  ],
};

for (const [name, kindOf] of Object.entries(KINDS)) {
  const whole = read(`attacks/${name}.json`);
  write(`attacks/${name}.json`, {
    ...whole,
    count: undefined,
    cases: shuffled([...vary(whole.cases, kindOf), ...(MORE[name] ?? [])]),
  });
}
write(
  'schema-cases.json',
  vary(read('schema-cases.json'), (one) => one.expected.class),
);
const catalogs = readdirSync(path.join(from, 'catalogs')).filter((name) => name.endsWith('.json'));
const small = catalogs.map((name) => [name, read(`catalogs/${name}`)]).filter(([, { tools }]) => tools.length <= 40);
for (const [at, [, catalog]] of shuffled(small).slice(0, 5).entries())
  write(`catalogs/other-${at}.json`, { ...catalog, tools: shuffled(catalog.tools) });
write('catalogs/own.json', {
  tools: [
    {
      name: 'note.add',
      description: 'Adds a note.',
      inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
      outputSchema: { type: 'object', properties: { id: { type: 'integer' } } },
    },
  ],
});

/** Runs suites over a folder. Returns the exit code and the output. */
function run(folder, ...files) {
  const { status, stdout, stderr } = spawnSync(
    'npx',
    ['--no-install', 'vitest', 'run', '--config', 'vitest.corpora.config.ts', ...files],
    { cwd: project, encoding: 'utf8', env: { ...process.env, TOLLGATE_CORPORA: folder }, maxBuffer: 1 << 28 },
  );
  return { status, text: stdout + stderr };
}

/** Runs a suite over a faulty folder. The suite must fail and say why. */
function mustFail(change, { file, says }) {
  const wrong = mkdtempSync(path.join(tmpdir(), 'tollgate-corpora-'));
  cpSync(into, wrong, { recursive: true });
  change(wrong);
  const { status, text } = run(wrong, file);
  rmSync(wrong, { recursive: true, force: true });
  if (status === 0 || !text.includes(says))
    throw new Error(`${file} did not fail with ${JSON.stringify(says)}:\n${text.slice(-3000)}`);
}

try {
  const { status, text } = run(into, ...process.argv.slice(2));
  process.stdout.write(text.slice(-4000));
  if (status !== 0) throw new Error(`the suites fail over another folder (seed ${seed})`);
  const change = (folder, name, work) => {
    const file = path.join(folder, 'attacks', name);
    const whole = JSON.parse(readFileSync(file, 'utf8'));
    work(whole);
    writeFileSync(file, JSON.stringify(whole));
  };
  mustFail(
    (folder) =>
      change(folder, 'path_cases.json', ({ cases }) =>
        cases.push({ id: 'wrong', allowed: ['/srv'], path: '/etc/passwd', expected: 'allow', note: 'a wrong verdict' }),
      ),
    { file: 'test/corpora/paths.test.ts', says: 'wrong a wrong verdict' },
  );
  mustFail((folder) => change(folder, 'path_cases.json', (whole) => (whole.cases = [])), {
    file: 'test/corpora/paths.test.ts',
    says: 'path_cases.json: no cases',
  });
  process.stdout.write('The suites judge another folder, and fail over a wrong verdict and an empty file.\n');
} finally {
  rmSync(into, { recursive: true, force: true });
}
