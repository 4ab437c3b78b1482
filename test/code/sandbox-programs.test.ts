/** Tests what programs can do in the sandbox for code, and how their errors are told. */
import { afterAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { closeShared, failureOfCode, programOf, runCode, shared, textResult, valueOfCode } from './sandbox-runs.ts';

afterAll(closeShared);

describe('a program', () => {
  it('is TypeScript with imports, and with await and return on the first level' + verifies('CM-15'), async () => {
    const outcome = await runCode(
      `import { create_issue } from 'host:mcp-github';
       import * as files from 'host:tollgate';
       import type { Nothing } from 'host:nowhere';
       interface Issue { readonly title: string }
       enum Kind { Bug = 3 }
       const issue = { title: 'a', kind: Kind.Bug } satisfies object as unknown as Issue;
       const first: string = create_issue(issue);
       const second = await files.read.async({ path: 'x' });
       return [first, second] as const;`,
    );
    expect(outcome).toMatchObject({ kind: 'returned', printed: '', media: [] });
    expect(outcome.calls).toEqual([
      { seq: 1, module: 'host:mcp-github', function: 'create_issue', args: '{"title":"a","kind":3}', isAsync: false },
      { seq: 2, module: 'host:tollgate', function: 'read', args: '{"path":"x"}', isAsync: true },
    ]);
    expect(outcome.kind === 'returned' && outcome.value).toBe(
      JSON.stringify(['{"title":"a","kind":3}', '{"path":"x"}']),
    );
  });

  it.each([
    ["const { read } = require('host:tollgate'); return read()", '{}'],
    ["import files from 'host:tollgate'; return files.read()", '{}'],
    ["const files = await import('host:tollgate'); return files.read({a: 1})", '{"a":1}'],
    ["return require('host:tollgate').read.name", 'read'],
    ["return Object.keys(require('host:tollgate'))", ['read', 'write', 'edit', 'bash']],
    [
      "const m = require('host:tollgate'); return [typeof m.then, typeof m[Symbol.iterator], m === m.default]",
      ['undefined', 'undefined', true],
    ],
    ["return [1, 2].map(require('host:tollgate').read.async).length", 2],
    ['return undefined', undefined],
    ['export const x = 1', undefined],
    ['return Promise.resolve({ a: 1 })', { a: 1 }],
    ['return new Date()', '2027-01-15T08:00:00.000Z'],
    ['return [typeof vars, typeof args]', ['undefined', 'undefined']],
    ['return [1e400 > 1, 2n ** 64n > 1n, "é".normalize("NFD").length]', [true, true, 2]],
  ])('%s' + verifies('CM-15'), async (code, value) => {
    expect(await valueOfCode(code)).toEqual(value);
  });

  it('gets constants, and variables that it gives back' + verifies('CM-15'), async () => {
    const given = { args: '{"by":2}', variables: '{"count":1,"__proto__":5}' };
    const outcome = await runCode('vars.count += args.by; vars.more = [vars.count]; return vars.count', given);
    expect(outcome).toMatchObject({ kind: 'returned', value: '3', variables: '{"count":3,"__proto__":5,"more":[3]}' });
    expect(await failureOfCode('vars = {}', given)).toMatch(/^CODE_FAILED TypeError: .*vars.* \(line 1\)/);
  });

  it('prints one line for each call, as people read values' + verifies('CM-15'), async () => {
    const code = `print('a', 1, [true, null, { b: 'c' }], undefined, 5n);
      console.error(new RangeError('odd'), Promise.resolve(1), function named() {});
      const around = { x: 1 }; around.around = around; console.log(around);
      console.info(); console.warn('a\\0b'); console.debug(new Date());`;
    expect((await runCode(code)).printed).toBe(
      'a 1 [true,null,{"b":"c"}] undefined 5n\n' +
        'RangeError: odd [a promise: put `await` before it] [function named]\n' +
        '{"x":1,"around":[circular]}\n\na\0b\n2027-01-15T08:00:00.000Z\n',
    );
  });

  it('runs until all its calls are answered, also without await' + verifies('CM-15'), async () => {
    const outcome = await runCode(
      `const { read } = require('host:tollgate');
       for (let i = 0; i < 10; i += 1) read.async({ i }).then((text) => print(text));
       return 'done'`,
      { limits: { parallel: 2 } },
    );
    expect(outcome).toMatchObject({ kind: 'returned', value: '"done"' });
    expect(outcome.printed.split('\n')).toHaveLength(11);
  });

  it('sends at most `parallel` calls at the same time, and the others in their order' + verifies('CM-15'), async () => {
    const code = `const { read, write } = require('host:tollgate');
      const all = [1, 2, 3, 4, 5].map((i) => read.async({ i }));
      write();
      await Promise.all(all)`;
    const open = new Set<number>();
    const seen: string[] = [];
    const run = shared.start(programOf(code, { limits: { parallel: 2 } }), ({ seq, isAsync }) => {
      open.add(seq);
      seen.push(`${seq} of ${open.size}${isAsync ? '' : ', which waits'}`);
      if (seen.length < 3) return;
      for (const one of [...open].reverse()) run.answer(one, textResult(''));
      open.clear();
    });
    expect((await run.done).kind).toBe('returned');
    expect(seen).toEqual(['1 of 1', '2 of 2', '6 of 3, which waits', '3 of 1', '4 of 1', '5 of 1']);
  });
});

describe('errors of programs', () => {
  it.each([
    ['const x = ;', 'line 1:11: Unexpected token\n1 | const x = ;\n              ^'],
    [
      'let a: string = "x";\n  let b = 1 2;',
      'line 2:13: Unexpected token, expected ";"\n2 |   let b = 1 2;\n                ^',
    ],
    [
      'let a = 1;\n  let a = 2;',
      'line 2:9: invalid redefinition of lexical identifier\n2 |   let a = 2;\n            ^',
    ],
    ['let a = 1; let a = 2;', 'line 1:18: invalid redefinition'],
    ['if (true) {\n', 'line 2:1: Unexpected token'],
    ['}); print(1); (async () => {', 'line 1:1: Unexpected token'],
    ['return `a ${', 'line 1:13: Unexpected token'],
    [
      '// fine\nprint("a\0b")',
      'line 2:9: The character U+0000 is not allowed in code\n2 | print("a b")\n            ^',
    ],
    [`${'('.repeat(100_000)}`, 'The code is nested too deeply'],
    [`${'{'.repeat(3_000)}${'}'.repeat(3_000)}`, undefined],
    [`const long = ${'1 + '.repeat(100)};`, `${' '.repeat(63)}^`],
  ])('name line and column of code that cannot be read: %s' + verifies('CM-23'), async (code, told) => {
    const outcome = await runCode(code);
    if (told === undefined) return expect(outcome.kind).toBe('returned');
    expect(outcome).toMatchObject({ kind: 'failed', code: 'CODE_SYNTAX' });
    expect(outcome.kind === 'failed' && outcome.message).toContain(told);
    expect(outcome.kind === 'failed' && outcome.message).toMatch(/\nCorrect the code and send it again\.$/);
  });

  it.each([
    ['\nnull.x', "TypeError: cannot read property 'x' of null (line 2)"],
    [
      'type A = 1;\ninterface B {}\nfunction f(a: A) {\n  throw new RangeError("odd") }\nf(1)',
      'RangeError: odd (line 4)',
    ],
    ['async function f() {\n  await 1; missing(); }\nawait f()', "ReferenceError: 'missing' is not defined (line 2)"],
    ['throw 5', 'The program threw 5, which is no Error'],
    ['throw null', 'The program threw null, which is no Error'],
    ['throw { a: 1 }', 'The program threw {"a":1}, which is no Error'],
    ['throw { get message() { throw 1 } }', 'a value that cannot be shown, which is no Error'],
    ['throw Object.assign(new Error("x"), { stack: 5, name: Symbol() })', 'Error: x'],
    ['await new Promise(() => {})', 'The program waits for a promise that nothing can settle.'],
    ["throw new Error('x'.repeat(5000))", `${'x'.repeat(1_000)}…`.slice(-400)],
  ])('name the line of the code in which it happened: %s' + verifies('CM-23'), async (code, told) => {
    const failure = await failureOfCode(code);
    expect(failure).toMatch(/^CODE_FAILED /);
    expect(failure).toContain(told);
    expect(failure).not.toMatch(/tollgate|\.cjs|\.js|file:|node:|\/work|wasm/);
  });

  it.each([
    [
      "require('host:mcp-github').create_isue()",
      'host:mcp-github has no function "create_isue"; did you mean create_issue?',
    ],
    ["import { lst } from 'host:mcp-github'; lst()", 'There are: create_issue, list_issues, get_issue. (line 1)'],
    ["require('host:mcp-gihub')", 'There is no module "host:mcp-gihub"; did you mean host:mcp-github?'],
    ["require('fs')", 'There are: host:mcp-github, host:tollgate, host:data. (line 1)'],
    ['require({})', 'require needs the name of a module as text.'],
    ["await import('node:fs')", 'There is no module "node:fs"'],
    ["require('host:tollgate').read = 1", 'TypeError'],
  ])('name what was meant: %s' + verifies('CM-15'), async (code, told) => {
    expect(await failureOfCode(code)).toContain(told);
  });

  it('can be caught where a name is unknown' + verifies('CM-15'), async () => {
    expect(await valueOfCode("try { require('fs') } catch ({ message }) { return message }")).toMatch(
      /^There is no module/,
    );
  });
});
