/** Runs programs in the sandbox for code, and answers their calls. */
import { CodeSandbox } from '../../facade/code/sandbox/code-sandbox.ts';
import type {
  CodeLimits,
  SandboxAnswer,
  SandboxCall,
  SandboxOutcome,
  SandboxProgram,
} from '../../facade/code/sandbox/sandbox-program.ts';

/** Limits that no program of a test reaches by accident. */
export const WIDE: CodeLimits = {
  memoryBytes: 64_000_000,
  stackBytes: 500_000,
  timeMs: 20_000,
  outputBytes: 100_000,
  calls: 100,
  parallel: 4,
};

/** What a test may give besides the code. */
export interface RunOptions extends Partial<Omit<SandboxProgram, 'limits'>> {
  readonly limits?: Partial<CodeLimits>;
  /** Answers a call; undefined: the call gets no answer. Default: a text result that repeats the arguments. */
  readonly answer?: ((call: SandboxCall) => SandboxAnswer | undefined) | undefined;
  readonly sandbox?: CodeSandbox;
}

const texts = (...names: string[]) => names.map((name) => ({ name, json: false }));

/** The modules of all tests. */
export const MODULES = [
  { name: 'host:mcp-github', functions: texts('create_issue', 'list_issues', 'get_issue') },
  { name: 'host:tollgate', functions: texts('read', 'write', 'edit', 'bash') },
  { name: 'host:data', functions: [{ name: 'query', json: true }] },
] as const;

/** Returns a result with content blocks. */
export function contentResult(...content: readonly object[]): SandboxAnswer {
  return { kind: 'result', text: JSON.stringify({ content }) };
}

/** Returns a result with one text. */
export function textResult(text: string): SandboxAnswer {
  return contentResult({ type: 'text', text });
}

/** The sandbox of a test file: `afterAll(closeShared)`. */
export let shared = new CodeSandbox();

/** Ends the workers. Test files share a process, so the next one gets another sandbox. */
export function closeShared(): void {
  shared.close();
  shared = new CodeSandbox();
}

/** Returns the program of a test. */
export function programOf(code: string, options: RunOptions = {}): SandboxProgram {
  const { limits, answer: _answer, sandbox: _sandbox, ...given } = options;
  return {
    modules: MODULES,
    startedAt: 1_800_000_000_000,
    seed: 'a seed',
    ...given,
    code,
    limits: { ...WIDE, ...limits },
  };
}

/** Runs a program to its end. Returns what became of it, and its calls. */
export async function runCode(
  code: string,
  options: RunOptions = {},
): Promise<SandboxOutcome & { readonly calls: readonly SandboxCall[] }> {
  const { answer = ({ args }) => textResult(args), sandbox = shared } = options;
  const calls: SandboxCall[] = [];
  const run = sandbox.start(programOf(code, options), (call) => {
    calls.push(call);
    const given = answer(call);
    if (given !== undefined) run.answer(call.seq, given);
  });
  return { ...(await run.done), calls };
}

/** Returns the value of a program that returns one. Throws if it does not. */
export async function valueOfCode(code: string, options: RunOptions = {}): Promise<unknown> {
  const outcome = await runCode(code, options);
  if (outcome.kind !== 'returned') throw new Error(`the program did not return: ${JSON.stringify(outcome)}`);
  return outcome.value === undefined ? undefined : JSON.parse(outcome.value);
}

/** Returns code and message of a program that fails. Throws if it does not. */
export async function failureOfCode(code: string, options: RunOptions = {}): Promise<string> {
  const outcome = await runCode(code, options);
  if (outcome.kind !== 'failed') throw new Error(`the program did not fail: ${JSON.stringify(outcome)}`);
  return `${outcome.code} ${outcome.message}`;
}
