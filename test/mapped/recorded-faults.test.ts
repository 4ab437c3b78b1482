/** Tests faults that real servers show only sometimes. Recorded answers of these servers are replayed word for word. */
import { describe, expect, it } from 'vitest';
import type { PrimitiveBackend, ServerAdapter } from '../../adapters/port.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { loadMapping, type MAPPINGS } from '../../catalogs/primitives/primitive-mapping.ts';
import type { ContentItem } from '../../catalogs/tools/tool-definition.ts';

const ROOT = '/tmp';
type Args = Readonly<Record<string, unknown>>;
type Reply = string | { readonly error: string } | readonly ContentItem[];
type Replies = Readonly<Record<string, Reply | ((args: Args) => Reply)>>;

/** Returns a backend whose server replays recorded answers. `calls` lists the called tools. */
function replay(
  id: (typeof MAPPINGS)[number],
  replies: Replies,
): { readonly backend: PrimitiveBackend; readonly calls: string[] } {
  const calls: string[] = [];
  const inner: ServerAdapter = {
    name: id,
    start: () => Promise.resolve({ name: id, version: '0', protocolVersion: '2025-11-25' }),
    listTools: () => Promise.resolve([]),
    call: ({ tool, args, signal }) => {
      if (signal.aborted) return Promise.reject(new TollgateError('CANCELLED'));
      calls.push(tool);
      const given = replies[tool];
      const reply =
        typeof given === 'function' ? given(args.value) : (given ?? { error: `Error: no answer for ${tool}` });
      const value =
        typeof reply === 'string'
          ? { content: [{ type: 'text', text: reply }] }
          : 'error' in reply
            ? { content: [{ type: 'text', text: reply.error }], isError: true }
            : { content: reply };
      return Promise.resolve({ text: JSON.stringify(value), value, exact: true });
    },
    health: () => ({ state: 'healthy', restarts: 0, badLines: 0 }),
    info: () => undefined,
    onToolsChanged: () => undefined,
    stop: () => Promise.resolve(),
  };
  return { backend: createMappedBackend({ inner, mapping: loadMapping(id), root: ROOT }), calls };
}

async function say(
  backend: PrimitiveBackend,
  tool: string,
  args: Args,
  signal = new AbortController().signal,
): Promise<{ readonly all: string; readonly code?: string; readonly isError: boolean }> {
  try {
    const { value } = await backend.call({
      tool,
      args: { text: JSON.stringify(args), value: args, exact: true },
      scope: 's',
      signal,
      timeoutMs: 20_000,
      hardTimeoutMs: 20_000,
    });
    return { all: (value.content ?? []).map((item) => item.text).join('\n'), isError: value.isError === true };
  } catch (error) {
    if (!(error instanceof TollgateError)) throw error;
    return { all: error.message, code: error.code, isError: true };
  }
}

const info = (size: number, extra = ''): string =>
  `size: ${size}
created: "2026-11-21T23:04:53.489Z"
modified: "2026-11-21T23:04:53.489Z"
accessed: "2026-11-21T23:04:54.693Z"
isDirectory: false
isFile: true
permissions: 644${extra}`;
const page = (lines: readonly string[]): string =>
  `[Reading ${lines.length} lines from start (total: ${lines.length} lines, 0 remaining)]\n\n${lines.join('\n')}`;
const ABSENT = { error: "Error: ENOENT: no such file or directory, stat '/tmp/a'" };

describe('reading on desktop-commander', () => {
  it('drops the warning about unknown arguments before the answer', async () => {
    const note = {
      type: 'text',
      text:
        'You sent parameters not supported by this tool, which were ignored: foo. ' +
        'Supported parameters for read_file: path.',
    };
    const { backend } = replay('desktop-commander', {
      get_file_info: info(4),
      read_file: [note, { type: 'text', text: page(['one']) }],
    });
    expect(await say(backend, 'read', { path: 'a' })).toEqual({ all: 'one\n', isError: false });
  });

  it('refuses images and documents instead of returning their text as the file', async () => {
    const image = replay('desktop-commander', {
      get_file_info: info(4),
      read_file: [
        { type: 'text', text: 'Image file: /tmp/a' },
        { type: 'image', data: 'AA==', mimeType: 'image/png' },
      ],
    });
    expect(await say(image.backend, 'read', { path: 'a' })).toMatchObject({ code: 'NOT_SUPPORTED' });
    const pdf = replay('desktop-commander', { get_file_info: info(4), read_file: 'PDF file: /tmp/a (2 pages) \n' });
    expect(await say(pdf.backend, 'read', { path: 'a' })).toMatchObject({ code: 'NOT_SUPPORTED' });
  });

  it('refuses lines deep in a large file, whose numbers are only estimated', async () => {
    const { backend } = replay('desktop-commander', {
      get_file_info: info(20_000_000),
      read_file: ({ offset }) =>
        offset === 0 ? '[Reading 1 lines from start]\n\nx' : '[Reading 1 lines from line 5000]\n\nx',
    });
    expect(await say(backend, 'read', { path: 'a', offset: 5001 })).toMatchObject({ code: 'NOT_SUPPORTED' });
    expect((await say(backend, 'read', { path: 'a' })).all).toContain('lines 1-1 of more');
  });

  it('reports system errors with the messages of the workspace and without host paths', async () => {
    const denied = replay('desktop-commander', {
      get_file_info: info(4),
      read_file: { error: "Error: EACCES: permission denied, open '/tmp/a'" },
    });
    expect((await say(denied.backend, 'read', { path: 'a' })).all).toContain('does not permit');
    const other = replay('desktop-commander', {
      get_file_info: { error: 'Error: something at /tmp/a and /var/lib/secret/place broke' },
    });
    const said = await say(other.backend, 'read', { path: 'a' });
    expect(said).toMatchObject({ isError: true });
    expect(said.all).not.toMatch(/\/tmp|\/var/);
    const outside = replay('desktop-commander', {
      get_file_info: { error: 'Error: Path not allowed: /tmp/a. Must be within one of these directories: /x' },
    });
    expect(await say(outside.backend, 'read', { path: 'a' })).toMatchObject({ code: 'DENIED' });
  });

  it('reports entries that the backend left out, and joins names that contain line ends', async () => {
    const listing = '[FILE] a\n[FILE] b\nc\n[DIR] d\n[WARNING] d: 20 items hidden (showing first 100 of 120 total)';
    const { backend } = replay('desktop-commander', { list_directory: listing, read_file: ABSENT });
    const said = await say(backend, 'read', { action: 'list', path: '.' });
    expect(said.all).toContain('a\n"b\\nc"\nd/');
    expect(said.all).toContain('20 more in d');
  });

  it('refuses a depth below 1, and reports an empty folder', async () => {
    const { backend } = replay('desktop-commander', { list_directory: '', read_file: ABSENT });
    expect(await say(backend, 'read', { action: 'list', path: '.', depth: 0 })).toMatchObject({ code: 'ARGS_INVALID' });
    expect((await say(backend, 'read', { action: 'list', path: '.' })).all).toContain('no entries');
  });
});

describe('searching on desktop-commander', () => {
  const search = (results: Reply | ((args: Args) => Reply)): Replies => ({
    get_file_info: info(4),
    read_file: ABSENT,
    start_search: 'Started content search session: search_1_2\nStatus: RUNNING',
    stop_search: 'ok',
    get_more_search_results: results,
  });
  const done = (total: number, lines: readonly string[], warning = ''): string =>
    `Search session: search_1_2
Status: COMPLETED
Runtime: 0s
Total results found: ${total} (${total} matches)
Showing results 0-1

Results:
${lines.join('\n')}

✅ Search completed.${warning}`;
  const WARNING = '\n⚠️  Warning: Some files were inaccessible due to permissions. Results may be incomplete.';

  it('waits until the search is complete, and always stops it', async () => {
    let asked = 0;
    const { backend, calls } = replay(
      'desktop-commander',
      search(() =>
        (asked += 1) < 3
          ? 'Status: IN PROGRESS\nNo results yet, search is still running...'
          : done(1, ['📄 /tmp/a:3 - x: y - z']),
      ),
    );
    expect((await say(backend, 'read', { action: 'search', path: '.', pattern: 'x' })).all).toBe('a:3:x: y - z');
    expect(asked).toBe(3);
    expect(calls.filter((tool) => tool === 'stop_search')).toHaveLength(1);
  });

  it('reports an empty result with a warning as a failure', async () => {
    const { backend } = replay('desktop-commander', search(done(0, ['No matches found.'], WARNING)));
    expect(await say(backend, 'read', { action: 'search', path: '.', pattern: '[' })).toMatchObject({
      isError: true,
      all: expect.stringContaining('not valid') as unknown,
    });
  });

  it('reports what is missing: unreadable files, cut lines, names that cannot be parsed', async () => {
    const { backend } = replay(
      'desktop-commander',
      search(done(3, [`📄 /tmp/a:1 - ${'x'.repeat(100)}...`, '📄 /tmp/b:1 - x'], WARNING)),
    );
    const { all } = await say(backend, 'read', { action: 'search', path: '.', pattern: 'x' });
    expect(all).toContain('[cut by the backend]');
    expect(all).toContain('some files could not be read; 1 results');
  });

  it('reports that ignored files are left out even with hidden=true', async () => {
    const { backend } = replay('desktop-commander', search(done(1, ['📁 /tmp/a'])));
    expect((await say(backend, 'read', { action: 'find', path: '.', pattern: '*', hidden: true })).all).toContain(
      'this backend leaves out ignored files',
    );
  });

  it('reports failures of the backend, and still stops the search', async () => {
    const missing = replay('desktop-commander', { get_file_info: ABSENT });
    expect((await say(missing.backend, 'read', { action: 'search', path: 'a', pattern: 'x' })).all).toContain(
      'does not exist',
    );
    const none = replay('desktop-commander', {
      ...search(''),
      start_search: { error: 'Error starting search session: ripgrep binary not found.' },
    });
    expect((await say(none.backend, 'read', { action: 'search', path: '.', pattern: 'x' })).all).toContain(
      'ripgrep binary not found',
    );
    const lost = replay(
      'desktop-commander',
      search({ error: 'Error reading search results: Search session search_1_2 not found' }),
    );
    expect(await say(lost.backend, 'read', { action: 'search', path: '.', pattern: 'x' })).toMatchObject({
      isError: true,
    });
    expect(lost.calls).toContain('stop_search');
  });
});

describe('writing and editing on desktop-commander', () => {
  it('reports an edit that failed without an error flag', async () => {
    const { backend } = replay('desktop-commander', {
      get_file_info: info(4),
      read_file: page(['one']),
      edit_block:
        'Expected 1 occurrences but found 2 in /tmp/a. Double check and make sure you understand all occurencies.',
    });
    expect(await say(backend, 'edit', { path: 'a', old_string: 'one', new_string: 'two' })).toMatchObject({
      isError: true,
      all: expect.stringContaining('Nothing was changed') as unknown,
    });
  });

  it('fails if the new size of the file does not match the edit', async () => {
    let looks = 0;
    const { backend } = replay('desktop-commander', {
      get_file_info: () => info((looks += 1) > 1 ? 99 : 4),
      read_file: page(['one']),
      edit_block: page(['two', '']),
    });
    expect((await say(backend, 'edit', { path: 'a', old_string: 'one', new_string: 'two' })).all).toContain(
      'grew by 95 bytes',
    );
  });

  it('refuses an edit that would damage the file', async () => {
    const bad = replay('desktop-commander', { get_file_info: info(4), read_file: page(['a\uFFFDb']) });
    expect(await say(bad.backend, 'edit', { path: 'a', old_string: 'a', new_string: 'b' })).toMatchObject({
      code: 'NOT_SUPPORTED',
    });
    const large = replay('desktop-commander', { get_file_info: info(99_000_000) });
    expect(await say(large.backend, 'edit', { path: 'a', old_string: 'a', new_string: 'b' })).toMatchObject({
      code: 'NOT_SUPPORTED',
    });
    expect([...bad.calls, ...large.calls]).not.toContain('edit_block');
  });

  it('fails if the size of the stored file is wrong', async () => {
    let looks = 0;
    const { backend } = replay('desktop-commander', {
      get_file_info: () => ((looks += 1) > 1 ? info(7) : ABSENT),
      write_file: 'Successfully wrote to /tmp/a (1 lines) ',
    });
    expect((await say(backend, 'write', { path: 'a', content: 'x' })).all).toContain(
      'has 7 bytes after the write, not 1',
    );
  });

  it('reports that the backend cannot create a folder or store a file', async () => {
    const folder = replay('desktop-commander', {
      get_file_info: ABSENT,
      create_directory: { error: "Error: EROFS: read-only file system, mkdir '/tmp/n'" },
    });
    expect((await say(folder.backend, 'write', { path: 'n/a', content: 'x' })).all).toContain('does not permit');
    for (const mode of ['overwrite', 'append']) {
      const file = replay('desktop-commander', {
        get_file_info: info(4),
        write_file: { error: "Error: ENOSPC: no space left on device, write '/tmp/a'" },
      });
      expect((await say(file.backend, 'write', { path: 'a', content: 'x', mode })).all).toContain('no space');
    }
  });
});

describe('reading on server-filesystem', () => {
  it.each([
    ['larger than it can hand over', info(17_000_000).replaceAll('"', ''), 'x'],
    ['not UTF-8, by its size', info(3), 'a\uFFFD'],
    ['not UTF-8, by the replacement character', info(5), 'a\uFFFDb'],
    ['binary', info(3), 'a\0b'],
  ])('refuses a file that is %s, and stat still reports its facts', async (_name, facts, text) => {
    const { backend, calls } = replay('server-filesystem', { get_file_info: facts, read_text_file: text });
    expect(await say(backend, 'read', { path: 'a' })).toMatchObject({ code: 'NOT_SUPPORTED' });
    expect(await say(backend, 'edit', { path: 'a', old_string: 'a', new_string: 'c' })).toMatchObject({
      code: 'NOT_SUPPORTED',
    });
    expect(calls).not.toContain('write_file');
    const { all } = await say(backend, 'read', { action: 'stat', path: 'a' });
    expect(all).toContain('size:');
    expect(all).not.toContain('version:');
  });

  it('reports a folder of the tree that cannot be read', async () => {
    const { backend } = replay('server-filesystem', {
      directory_tree: { error: "EACCES: permission denied, scandir '/tmp/x'" },
      read_text_file: ABSENT,
    });
    expect((await say(backend, 'read', { action: 'find', path: '.', pattern: '*' })).all).toContain('does not permit');
    expect(await say(backend, 'read', { action: 'find', path: '.' })).toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('leaves out a subfolder that cannot be listed', async () => {
    const { backend } = replay('server-filesystem', {
      list_directory: ({ path }) => (path === ROOT ? '[DIR] shut\n[FILE] a' : { error: 'EACCES: permission denied' }),
      read_text_file: ABSENT,
    });
    expect((await say(backend, 'read', { action: 'list', path: '.', depth: 2 })).all).toBe('a\nshut/');
  });
});

/** A process of the recorded server. `lines` is its buffer, `ended` its trailer. */
function shell(lines: (token: string) => readonly string[], more: Replies = {}, ended = ''): Replies {
  let token = '';
  return {
    start_process: ({ command }) => {
      token = /@tollgate-[0-9a-f]{16}/.exec(String(command))?.[0] ?? token;
      return 'Process started with PID 7 (shell: bash)\nInitial output:\n';
    },
    read_process_output: ({ offset }) => {
      const all = lines(token);
      const from = Number(offset) < 0 ? Math.max(0, all.length + Number(offset)) : Number(offset);
      const part = all.slice(from);
      const text = part.join('\n') || '(No output in requested range)';
      return `[Reading ${part.length} lines from line ${from} (total: ${all.length} lines, 0 remaining)]\n\n${text}${ended}`;
    },
    force_terminate: 'Successfully initiated termination of session 7',
    list_sessions: 'No active sessions',
    interact_with_process: '✅ Input sent to process 7. Use read_process_output to get the response.',
    ...more,
  };
}

describe('bash on desktop-commander', () => {
  const COMPLETED = '\n✅ Process completed with exit code 0 (runtime: 0.10s)';

  it('reports that the end of the output was lost', async () => {
    const { backend } = replay(
      'desktop-commander',
      shell((token) => ['', `${token} begin 70`, 'half', ''], {}, COMPLETED),
    );
    expect((await say(backend, 'bash', { command: 'x' })).all).toContain('the end of its output may be missing');
  });

  it('reports that the server does not know the process any more', async () => {
    const { backend } = replay(
      'desktop-commander',
      shell(() => [], { read_process_output: { error: 'No session found for PID 7' } }),
    );
    expect((await say(backend, 'bash', { command: 'x' })).all).toContain('exit unknown');
  });

  it('shows the output of a shell that did not start the command', async () => {
    const { backend } = replay(
      'desktop-commander',
      shell(() => ['bash: cannot start', ''], {}, COMPLETED.replace('code 0', 'code 2')),
    );
    expect((await say(backend, 'bash', { command: 'x' })).all).toMatch(/^exit 2\nbash: cannot start/);
  });

  it('fails if the server did not start a process', async () => {
    const { backend } = replay(
      'desktop-commander',
      shell(() => [], {
        start_process: { error: 'Error: Failed to get process ID. The command could not be executed.' },
      }),
    );
    expect(await say(backend, 'bash', { command: 'x' })).toMatchObject({ isError: true });
  });

  it('continues at the right line after the server evicted earlier lines', async () => {
    let reads = 0;
    const { backend } = replay(
      'desktop-commander',
      shell(() => [], {
        read_process_output: ({ offset }) => {
          reads += 1;
          const token = /@tollgate-[0-9a-f]{16}/.exec(sent)?.[0];
          if (reads === 1)
            return `[Reading 3 lines from line 1 (total: 4 lines, 0 remaining)]\n\n${token} begin 70\none\n`;
          const warning =
            '\n[WARNING: output exceeded the 50MB buffer cap; the 2 earliest lines were evicted and cannot be read. ' +
            'Line numbers and totals refer to the retained buffer only]';
          const rest = ['two', '', `${token} end 0 0 >`, ''].slice(Number(offset) - 1);
          const header = `[Reading ${rest.length} lines from line ${offset} (total: 5 lines, 0 remaining)]`;
          return `${header}${warning}\n\n${rest.join('\n')}`;
        },
        start_process: ({ command }) => {
          sent = String(command);
          return 'Process started with PID 7 (shell: bash)';
        },
      }),
    );
    let sent = '';
    expect((await say(backend, 'bash', { command: 'x' })).all).toBe('one\ntwo');
  });

  it('does not report a session as ended while one of its processes is running', async () => {
    let token = '';
    let killing = false;
    const { backend } = replay(
      'desktop-commander',
      shell(() => [], {
        start_process: ({ command }) => {
          token = /@tollgate-[0-9a-f]{16}/.exec(String(command))?.[0] ?? token;
          killing = String(command).includes('left>');
          return 'Process started with PID 7';
        },
        read_process_output: () =>
          killing
            ? '[Reading last 1 lines (total: 1 lines)]\n\nleft>'
            : `[Reading 2 lines from line 1 (total: 3 lines, 0 remaining)]\n\n${token} begin 70\n`,
      }),
    );
    await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 });
    expect(await say(backend, 'bash', { action: 'kill', session: 's1' })).toMatchObject({
      isError: true,
      all: expect.stringContaining('still running') as unknown,
    });
  });

  it('keeps at most sixteen sessions, and replaces one that has ended', async () => {
    let over = false;
    const { backend } = replay(
      'desktop-commander',
      shell((token) => ['', `${token} begin 70`, ...(over ? ['', `${token} end 0 0 >`] : []), '']),
    );
    for (let made = 0; made < 16; made += 1) await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 });
    expect((await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 })).all).toContain('16 sessions');
    over = true;
    await say(backend, 'bash', { action: 'poll', session: 's16', wait_ms: 0 });
    expect((await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 })).all).toContain('s17');
  });

  it('refuses input for a command that has ended, and reports input that the backend refused', async () => {
    let over = false;
    const { backend } = replay(
      'desktop-commander',
      shell((token) => ['', `${token} begin 70`, ...(over ? ['', `${token} end 0 0 >`] : []), ''], {
        interact_with_process: { error: 'Error: Failed to send input to process 7.' },
      }),
    );
    await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 });
    expect(await say(backend, 'bash', { action: 'send', session: 's1', input: 'x' })).toMatchObject({ isError: true });
    over = true;
    expect((await say(backend, 'bash', { action: 'send', session: 's1', input: 'x' })).all).toContain('has ended');
    expect((await say(backend, 'bash', { action: 'kill', session: 's1' })).all).toContain('exit 0');
    expect(await say(backend, 'bash', { action: 'poll', session: 's1', offset: 0 })).toMatchObject({
      code: 'ARGS_INVALID',
    });
    expect(await say(backend, 'bash', { action: 'poll' })).toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('reports sessions that could not be ended with their scope', async () => {
    const { backend } = replay(
      'desktop-commander',
      shell((token) => ['', `${token} begin 70`, ''], {
        force_terminate: { error: 'x' },
        list_sessions: 'PID: 7, Blocked: true, Runtime: 1s',
      }),
    );
    await say(backend, 'bash', { action: 'start', command: 'x', wait_ms: 0 });
    await expect(backend.endScope?.('s')).rejects.toMatchObject({ code: 'TOOL_FAILED' });
  }, 30_000);
});
