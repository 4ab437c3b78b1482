/** Tests which names and arguments use a capability. */
import { describe, expect, it } from 'vitest';
import { type Capability, isNamed, isOn, isUsed, TOOL_CAPABILITIES } from '../../catalogs/tools/tool-capabilities.ts';
import { literalWords } from '../../facade/call/lowering/command-facts.ts';
import { verifies } from '../verifies.ts';

function capability(name: string): Capability {
  return TOOL_CAPABILITIES.get(name) as Capability;
}

function named(tool: string): readonly string[] {
  return [...TOOL_CAPABILITIES.values()].filter((one) => isNamed(one, tool)).map(({ name }) => name);
}

function used(tool: string, args: Readonly<Record<string, unknown>>, paths: readonly string[] = []): readonly string[] {
  const text = args.command;
  const words = typeof text === 'string' ? literalWords(text) : undefined;
  const command = typeof text === 'string' ? { command: { text, ...(words !== undefined && { words }) } } : {};
  return [...TOOL_CAPABILITIES.values()]
    .filter((one) => isUsed(one, { tool, args, paths, ...command }))
    .map(({ name }) => name);
}

it('a server is recognized by its mapping, or by the tools that it has together', () => {
  const like = new Set(['start_process', 'edit_block', 'write_pdf', 'more']);
  for (const name of ['pdf', 'excel', 'in_memory_execution', 'remote_control']) {
    expect(isOn(capability(name), { mapping: 'desktop-commander', tools: new Set<string>() })).toBe(true);
    expect(isOn(capability(name), { mapping: undefined, tools: like })).toBe(true);
    expect(isOn(capability(name), { mapping: 'server-filesystem', tools: new Set([...like].slice(1)) })).toBe(false);
  }
  expect(isOn(capability('desktop'), { mapping: 'desktop-commander', tools: like })).toBe(false);
});

describe('capabilities as data' + verifies('CY-08'), () => {
  it('say in words what they allow and risk, and have a budget', () => {
    expect([...TOOL_CAPABILITIES.keys()]).toEqual([
      'pdf',
      'excel',
      'in_memory_execution',
      'remote_control',
      'desktop',
      'cross_workspace',
    ]);
    for (const { title, allows, risk, budget } of TOOL_CAPABILITIES.values()) {
      for (const text of [title, allows, risk]) expect(text.length).toBeGreaterThan(5);
      expect(budget.calls).toBeGreaterThan(0);
      expect(budget.bytes).toBeGreaterThan(0);
    }
  });

  it.each([
    ['write_pdf', ['pdf']],
    ['readPDFFile', ['pdf']],
    ['browser_pdf_save', ['pdf']],
    ['update-excel-range', ['excel']],
    ['getWorkbook', ['excel']],
    ['puppeteer_evaluate', ['in_memory_execution']],
    ['browser_run_code_unsafe', ['in_memory_execution']],
    ['execute_python', ['in_memory_execution']],
    ['start_remote_control', ['remote_control']],
    ['vnc-connect', ['remote_control']],
    ['read_file', []],
    ['git_remote', []],
    ['n8n_evaluations', []],
    ['excellent_tool', []],
    ['run_code_analyzer', []],
    ['run-code', ['in_memory_execution']],
    ['list_remote_devices', []],
    ['updfile', []],
  ])('the name %s: %j', (tool, expected) => {
    expect(named(tool)).toEqual(expected);
  });

  it.each<[string, Record<string, unknown>, string[]]>([
    ['read_file', { path: 'docs/report.pdf' }, ['pdf']],
    ['read_file', { path: 'REPORT.PDF ' }, ['pdf']],
    ['read_file', { path: 'report.pdf.' }, ['pdf']],
    ['read_file', { path: 'https://a.example/x.pdf?download=1', isUrl: true }, ['pdf']],
    ['read_file', { path: 'x%2Epdf' }, ['pdf']],
    ['read_multiple_files', { paths: ['a.txt', 'b.xlsx'] }, ['excel']],
    ['edit_block', { file_path: 'table.xlsm' }, ['excel']],
    ['write_file', { path: 'a.xls', content: '[]' }, ['excel']],
    ['start_search', { path: '.', filePattern: '*.{txt,xlsx}' }, ['excel']],
    ['start_search', { path: '.', filePattern: '*.xlsx|*.md' }, ['excel']],
    ['convert', { options: { inputs: [{ sourcePdfPath: '/a/b.pdf' }] } }, ['pdf']],
    ['convert', { request: { file: 'a.pdf' } }, ['pdf']],
    ...[
      'a.%70df',
      'a.%2570df',
      'a.pdf?raw=1',
      'a.pdf#3',
      'a.pdf:3',
      'a.pdf:stream:$DATA',
      '"a.pdf"',
      "'a.pdf'",
      'a.p*',
      'a.pd?',
      'a.[p]df',
      'data:application/pdf;base64,AA',
    ].map((path): [string, Record<string, unknown>, string[]] => ['read_file', { path }, ['pdf']]),
    ...[
      'a.xltx',
      'a.xlam',
      'a.xls*',
      'data:application/vnd.ms-excel,x',
      'data:application/vnd.openxmlformats-officedocument.spreadsheetml.sheet;base64,AA',
    ].map((path): [string, Record<string, unknown>, string[]] => ['read_file', { path }, ['excel']]),
    ['create_summary', { path: 'a.pdf' }, ['pdf']],
    ['do', { thing: 'a.pdf' }, ['pdf']],
    ['create_directory', { path: 'a.pdf' }, []],
    ['start_search', { path: '.', filePattern: '*' }, []],
    ['start_search', { path: '.', filePattern: '*.*' }, []],
    ['read_file', { path: '100%' }, []],
    ['read_file', { path: 'report.txt' }, []],
    ['send_message', { text: 'see report.pdf' }, []],
    ['move_file', { source: 'a.pdf', destination: 'b.pdf' }, []],
    ['list_directory', { path: 'x.pdf' }, []],
    ['read_file', { path: 'pdf' }, []],
    ['read_file', { path: 'a.pdf.txt' }, []],
  ])('arguments of %s %j: %j', (tool, args, expected) => {
    expect(used(tool, args)).toEqual(expected);
  });

  it('follow a link to its target', () => {
    expect(used('read_file', { path: 'notes' }, ['secret/report.pdf'])).toEqual(['pdf']);
  });

  it.each<[string, string[]]>([
    ['node:local', ['in_memory_execution']],
    ['python3 -i', ['in_memory_execution']],
    ['python3', ['in_memory_execution']],
    ['/usr/bin/python3.11 -c "print(1)"', ['in_memory_execution']],
    ['node -e "1"', ['in_memory_execution']],
    ['cat x | python3 -', ['in_memory_execution']],
    ['cd a && sudo env A=1 node --eval=1', ['in_memory_execution']],
    ['timeout 5 python3 -q', ['in_memory_execution']],
    ['bash -c "python3 -c 1"', ['in_memory_execution']],
    ['$(echo python3) -c 1', ['in_memory_execution']],
    ['npx tsx -e 1; node repl', ['in_memory_execution']],
    ['deno repl', ['in_memory_execution']],
    ['python3 <<EOF\nprint(1)\nEOF', ['in_memory_execution']],
    ['ssh -N -R 22:localhost:22 a.example', ['remote_control']],
    ['npx @wonderwhy-er/desktop-commander remote', ['remote_control']],
    ['x11vnc -forever', ['remote_control']],
    ['nohup ngrok http 80', ['remote_control']],
    ...[
      'python3 -Ic 1',
      'python3 -W ignore -c 1',
      'python3 /dev/stdin',
      'python3 /proc/self/fd/0',
      'node --require fs -e 1',
      'node --title x -e 1',
      'node -pe 1',
      'node --new-option x.js',
      'perl -we 1',
      'perl -MCwd -ne 1',
      'perl -d x.pl',
      'ruby -ne 1',
      'python3 -m code',
      'python3 -mpdb x.py',
      'python3 -m timeit 1',
      'deno run -',
      'deno eval 1',
      'bun run -',
      'php -f /dev/stdin',
      'php -r 1',
      'poetry run python -c 1',
      'uv run --with x python3.12 -c 1',
      'pypy3 -c 1',
      'tsx -e 1',
      'node --import data:text/javascript,1 x.js',
      'env -S "node -e 1"',
      'timeout -s KILL 5 python3 -c 1',
      'node inspect x.js',
      'find . -exec python3 -c 1 {} +',
      'xargs python3 -c 1',
      'linux64 python3 -c 1',
      'alias p=python3; p -c 1',
    ].map((command): [string, string[]] => [command, ['in_memory_execution']]),
    ...[
      'python3 -W ignore build.py',
      'python3 -u -m http.server',
      'python3 -Im pytest',
      'node --require ./x.js --no-warnings y.js',
      'node --env-file=.env x.js',
      'perl -w x.pl',
      'ruby -I lib x.rb',
      'deno run -A main.ts',
      'deno test',
      'bun install',
      'bun run start',
      'php -f x.php',
      'poetry run python x.py',
      'tsx watch x.ts',
      'lua -l m x.lua',
    ].map((command): [string, string[]] => [command, []]),
    ['python3 build.py', []],
    ['node dist/main.js --eval', []],
    ['python3 -m pytest', []],
    ['node --version', []],
    ['echo python3 -c', []],
    ['grep -r node .', []],
    ['ls -la', []],
    ['ssh a.example uptime', []],
  ])('the command %j: %j', (command, expected) => {
    expect(used('start_process', { command })).toEqual(expected);
  });

  it('of the host belong to host profiles only', () => {
    expect(capability('desktop')).toMatchObject({ host: true, names: [], files: [] });
    expect(used('click', { x: 1 })).toEqual([]);
  });
});
