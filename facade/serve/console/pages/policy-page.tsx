/** The page of policy: rules with how often they decided, and an editor whose draft is checked and replayed. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { CommandAnswer } from './console-client.tsx';
import { commandData, request, runCommand, useLoaded } from './console-client.tsx';
import { Act, Badge, Difference, Foreign, Json, Problem, Section, Shown, Time, visible } from './page-parts.tsx';
import { VirtualTable } from './virtual-table.tsx';

interface RuleRow {
  readonly id: string;
  readonly file: string;
  readonly line: number;
  readonly outcome: string;
  readonly mode?: string;
  readonly hits: number;
  readonly last?: string;
}

interface Source {
  readonly source: string;
  readonly text: string;
  /** SHA-256 of the file when it was read. */
  readonly digest: string;
}

interface Finding {
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
  readonly severity?: string;
  readonly message: string;
}

/** The page at `/policy`. `?source=FILE&line=N` opens the editor at a line. */
export function PolicyPage(): JSX.Element {
  const { query, route } = useLocation();
  const rules = useLoaded('rules', () =>
    commandData<{ readonly rules: readonly RuleRow[]; readonly sources: readonly string[] }>('rules'),
  );
  return (
    <>
      <h1>Policy</h1>
      <Shown loaded={rules}>
        {({ rules: rows, sources }) => (
          <>
            <Section title="Rules, and how often each decided in the log">
              <VirtualTable
                label="Rules"
                rows={rows}
                keyOf={({ file, id, line }) => `${file} ${line} ${id}`}
                href={({ file, line }) => `/policy?source=${encodeURIComponent(file)}&line=${line}`}
                empty="The policy has no rules."
                columns={[
                  { name: 'Rule', cell: ({ id }) => <Foreign text={id} /> },
                  { name: 'Outcome', cell: ({ outcome }) => <Badge word={outcome} /> },
                  {
                    name: 'Hits',
                    cell: ({ hits, id }) => <a href={`/calls?rule=${encodeURIComponent(id)}`}>{hits}</a>,
                  },
                  { name: 'Last', cell: ({ last }) => (last === undefined ? 'never' : <Time iso={last} />) },
                  { name: 'Mode', cell: ({ mode }) => mode ?? '', isWide: true },
                  { name: 'Place', cell: ({ file, line }) => `${file}:${line}`, isWide: true },
                ]}
              />
            </Section>
            <Section title="Edit">
              <div class="filters">
                {sources.map((source) => (
                  <a key={source} href={`/policy?source=${encodeURIComponent(source)}`}>
                    {source}
                  </a>
                ))}
              </div>
              {query.source !== undefined && (
                <Editor
                  key={query.source}
                  source={query.source}
                  line={Number(query.line ?? 1)}
                  close={() => route('/policy')}
                />
              )}
            </Section>
          </>
        )}
      </Shown>
      <Tests />
    </>
  );
}

function Editor({
  source,
  line,
  close,
}: {
  readonly source: string;
  readonly line: number;
  readonly close: () => void;
}): JSX.Element {
  const loaded = useLoaded(source, (signal) =>
    request<Source>(`source?name=${encodeURIComponent(source)}`, undefined, signal),
  );
  return (
    <Shown loaded={loaded}>{(data) => <Draft data={data} line={line} reload={loaded.reload} close={close} />}</Shown>
  );
}

function Draft({
  data,
  line,
  reload,
  close,
}: {
  readonly data: Source;
  readonly line: number;
  readonly reload: () => void;
  readonly close: () => void;
}): JSX.Element {
  const [text, setText] = useState(data.text);
  const [checked, setChecked] = useState<CommandAnswer<{ readonly findings: readonly Finding[] }>>();
  const [replayed, setReplayed] = useState<CommandAnswer<unknown>>();
  const [tested, setTested] = useState<CommandAnswer<unknown>>();
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState('');
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const start = data.text
      .split('\n')
      .slice(0, line - 1)
      .join('\n').length;
    area.current?.setSelectionRange(start + 1, start + 1);
    if (area.current !== null) area.current.scrollTop = Math.max(0, (line - 5) * 19);
  }, [line]);
  const ask = (what: 'check' | 'test' | 'replay'): void => {
    setBusy(what);
    setError(undefined);
    request<CommandAnswer<{ readonly findings: readonly Finding[] }>>('draft', { what, source: data.source, text })
      .then({ check: setChecked, test: setTested, replay: setReplayed }[what])
      .catch(setError)
      .finally(() => setBusy(''));
  };
  return (
    <>
      <label>
        {visible(data.source)}
        <textarea
          ref={area}
          value={text}
          spellcheck={false}
          wrap="off"
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <div class="buttons">
        <button type="button" onClick={() => ask('check')} disabled={busy !== ''}>
          {busy === 'check' ? 'Checking …' : 'Check'}
        </button>
        <button type="button" onClick={() => ask('test')} disabled={busy !== ''}>
          {busy === 'test' ? 'Testing …' : 'Test the draft'}
        </button>
        <button type="button" onClick={() => ask('replay')} disabled={busy !== ''}>
          {busy === 'replay' ? 'Replaying …' : 'Replay recorded calls'}
        </button>
        <Act
          label="Save"
          title={`Write ${visible(data.source)}?`}
          shows={() => `$EDITOR ${data.source}`}
          act={() => request<CommandAnswer<unknown>>('save', { source: data.source, text, digest: data.digest })}
          done={reload}
        >
          <Difference before={data.text} after={text} />
          <p>
            The file is written only if the checker finds no error in the whole policy with it, and no one has changed
            it meanwhile.
          </p>
        </Act>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
      {error !== undefined && <Problem error={error} />}
      {checked !== undefined && (
        <Section title="Checker">
          {(checked.data?.findings ?? []).length === 0 && <p role="status">{checked.messages || 'No findings.'}</p>}
          <ul>
            {(checked.data?.findings ?? []).map((finding, at) => (
              <li key={at}>
                <code>{visible(`${finding.file ?? ''}:${finding.line ?? ''}:${finding.column ?? ''}`)}</code>{' '}
                <Foreign text={finding.message} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      {tested !== undefined && (
        <Section title="Tests of the policy with the draft">
          <TestResult result={tested} />
        </Section>
      )}
      {replayed !== undefined && (
        <Section title="What the draft would change on recorded calls">
          {replayed.data === undefined ? <p role="status">{replayed.messages}</p> : <Json value={replayed.data} />}
        </Section>
      )}
    </>
  );
}

function Tests(): JSX.Element {
  const [result, setResult] = useState<CommandAnswer<unknown>>();
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const run = (): void => {
    setBusy(true);
    setError(undefined);
    runCommand('policy-test', {}, [0, 1])
      .then(setResult)
      .catch(setError)
      .finally(() => setBusy(false));
  };
  return (
    <Section title="Tests">
      <div class="buttons">
        <button type="button" onClick={run} disabled={isBusy}>
          {isBusy ? 'Running …' : 'Run the tests of the policy'}
        </button>
      </div>
      {error !== undefined && <Problem error={error} />}
      {result !== undefined && <TestResult result={result} />}
    </Section>
  );
}

function TestResult({ result: { exit, data, messages } }: { readonly result: CommandAnswer<unknown> }): JSX.Element {
  const verdict = exit === 0 ? 'All pass.' : data === undefined ? visible(messages) : 'A test fails.';
  return (
    <>
      <p role="status">{verdict}</p>
      {data !== undefined && <Json value={data} />}
    </>
  );
}
