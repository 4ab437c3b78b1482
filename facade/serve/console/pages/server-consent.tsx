/** The consent to one server: who approved what, what differs from it, and the review with its two questions. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { CommandAnswer } from './console-client.tsx';
import { runCommand } from './console-client.tsx';
import { Act, Badge, Difference, Facts, Foreign, Json, Problem, Section, Time, visible } from './page-parts.tsx';

/** Exit code of a question that a person must answer. */
const TO_DECIDE = 7;

/** One difference of the start from the approved one. A file has hashes, and a setting that is shown has values. */
interface StartChange {
  readonly what: string;
  readonly field?: string;
  readonly was?: string;
  readonly is?: string;
  readonly before?: unknown;
  readonly after?: unknown;
}

interface ConsentAct {
  readonly by: string;
  readonly at: string;
}

/** What `tollgate servers info NAME --json` shows. */
export interface ConsentInfo {
  readonly disabled?: ConsentAct;
  readonly changes: readonly StartChange[];
  readonly start?: ConsentAct & { readonly hash: string };
  readonly tools?: ConsentAct & { readonly set?: string; readonly names: readonly string[] };
  readonly pending?: {
    readonly since: string;
    readonly changed: readonly string[];
    readonly added: readonly string[];
    readonly removed: readonly string[];
    readonly more?: number;
  };
}

/** Who approved what, and what differs from it now. */
export function Consent({ info }: { readonly info: ConsentInfo }): JSX.Element {
  const { start, tools, disabled, pending, changes } = info;
  return (
    <>
      <Facts
        facts={{
          Start: start === undefined ? 'not approved' : <DoneBy act={start} what="approved" />,
          'Start hash': start && <code>{start.hash}</code>,
          Tools: tools && (
            <>
              <DoneBy act={tools} what={tools.set === undefined ? 'any tools, approved' : 'approved'} />
              {tools.set !== undefined && <>: {tools.names.map(visible).join(', ')}</>}
            </>
          ),
          Disabled: disabled && <DoneBy act={disabled} what="disabled" />,
          Waiting: pending && <Waiting pending={pending} />,
        }}
      />
      {changes.length > 0 && (
        <Section title="What changed since it was approved">
          <StartChanges changes={changes} />
        </Section>
      )}
    </>
  );
}

function DoneBy({ act, what }: { readonly act: ConsentAct; readonly what: string }): JSX.Element {
  return (
    <>
      {what} by <Foreign text={act.by} /> <Time iso={act.at} />
    </>
  );
}

/** The tools that differ from the approved ones, by name. */
function Waiting({ pending }: { readonly pending: NonNullable<ConsentInfo['pending']> }): JSX.Element {
  const { since, changed, added, removed, more = 0 } = pending;
  const lists = Object.entries({ changed, added, removed }).filter(([, names]) => names.length > 0);
  return (
    <>
      {lists.map(([word, names]) => (
        <div key={word}>
          <Badge word={word} /> {names.map(visible).join(', ')}
        </div>
      ))}
      {more > 0 && <div>and {more} more: all its tools wait</div>}
      since <Time iso={since} />
    </>
  );
}

/** The changes of a start: a file by its hashes, a setting by its words before and now. */
function StartChanges({ changes }: { readonly changes: readonly StartChange[] }): JSX.Element {
  return (
    <>
      {changes.map((change) => (
        <div key={`${change.what} ${change.field} ${change.was} ${change.is}`}>
          <h3>
            {visible(change.what)}
            {change.field !== undefined && change.field !== change.what && ` (${visible(change.field)})`}
          </h3>
          {change.field === undefined ? (
            <Difference before={hashText(change.was)} after={hashText(change.is)} />
          ) : 'before' in change || 'after' in change ? (
            <Difference before={valueText(change.before)} after={valueText(change.after)} />
          ) : (
            <p class="quiet">Its value differs. Values of variables and headers are never shown.</p>
          )}
        </div>
      ))}
    </>
  );
}

function hashText(sha256: string | undefined): string {
  return sha256 === undefined ? 'no such file' : `sha256 ${sha256}`;
}

function valueText(value: unknown): string {
  if (value === undefined) return 'not set';
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

interface ToolReview {
  readonly name: string;
  readonly state?: string;
  readonly semantics?: unknown;
  readonly changes?: readonly {
    readonly field: string;
    readonly old: readonly string[];
    readonly new: readonly string[];
  }[];
  readonly definition: unknown;
}

/** What `tollgate approve NAME --json` shows. */
interface ConsentReview {
  readonly start?: {
    readonly hash: string;
    readonly approved: boolean;
    readonly changes: readonly StartChange[];
    readonly facts: unknown;
    readonly remarks: readonly string[];
  };
  readonly tools?: {
    readonly hash: string;
    readonly tools: readonly ToolReview[];
    readonly removed?: readonly string[];
  };
  readonly approved: boolean;
}

/** How a server is started once to list its tools. The second is offered when the first has failed. */
const REVIEWS = [
  { label: 'Review what it starts and offers', command: 'server-approve' },
  { label: 'Start it with its own rights to list its tools', command: 'server-approve-own' },
] as const;

type ReviewCommand = (typeof REVIEWS)[number]['command'];

/** The two questions of an approval. Each is answered with the hash of what is shown. */
export function Review({ name, done }: { readonly name: string; readonly done: () => void }): JSX.Element {
  const [review, setReview] = useState<ConsentReview>();
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const [command, setCommand] = useState<ReviewCommand>(REVIEWS[0].command);
  const look = (by: ReviewCommand): void => {
    setBusy(true);
    setCommand(by);
    setError(undefined);
    runCommand<ConsentReview>(by, { name }, [0, TO_DECIDE])
      .then(({ data }) => setReview(data))
      .catch(setError)
      .finally(() => setBusy(false));
  };
  const agree = async (hashes: readonly string[]): Promise<CommandAnswer<unknown>> => {
    const answer = await runCommand<ConsentReview>(command, { name, yes: hashes }, [0, TO_DECIDE]);
    setReview(answer.data);
    return answer;
  };
  const { start, tools } = review ?? {};
  return (
    <>
      <div class="buttons">
        {REVIEWS.slice(0, error === undefined ? 1 : REVIEWS.length).map((by) => (
          <button key={by.command} type="button" onClick={() => look(by.command)} disabled={isBusy}>
            {isBusy && command === by.command ? 'Looking …' : by.label}
          </button>
        ))}
      </div>
      {error !== undefined && <Problem error={error} />}
      {review?.approved === true && <p role="status">It is approved, and nothing has changed.</p>}
      {start !== undefined && (
        <Section title="What would start">
          {start.remarks.length > 0 && (
            <ul>
              {start.remarks.map((remark) => (
                <li key={remark}>{visible(remark)}</li>
              ))}
            </ul>
          )}
          <StartChanges changes={start.changes} />
          <Json value={start.facts} />
          {tools === undefined && (
            <Act
              label={start.approved ? 'List its tools' : 'Approve the start'}
              title={start.approved ? `Let ${name} start once more, to list its tools?` : `Let ${name} start as shown?`}
              act={() => agree([start.hash])}
              done={done}
            >
              <p>
                Hash of what is shown: <code>{start.hash}</code>
              </p>
            </Act>
          )}
        </Section>
      )}
      {tools !== undefined && (
        <Section title="Its tools">
          {(tools.removed ?? []).length > 0 && <p>Removed: {tools.removed?.map(visible).join(', ')}</p>}
          {tools.tools.map((tool) => (
            <details key={tool.name} open={tool.state !== undefined}>
              <summary>
                <Foreign text={tool.name} /> {tool.state !== undefined && <Badge word={tool.state} />}
              </summary>
              <Changes changes={tool.changes} />
              <Json value={tool.definition} />
            </details>
          ))}
          {review?.approved !== true && start !== undefined && (
            <Act
              label="Approve the tools"
              title={`Let agents use these tools of ${name}?`}
              act={() => agree([start.hash, tools.hash])}
              done={done}
            >
              <p>
                Hash of what is shown: <code>{tools.hash}</code>
              </p>
            </Act>
          )}
        </Section>
      )}
    </>
  );
}

/** The fields of a definition that changed, before and after. */
function Changes({ changes = [] }: { readonly changes: ToolReview['changes'] }): JSX.Element {
  return (
    <>
      {changes.map(({ field, old, new: now }) => (
        <div key={field}>
          <h3>{visible(field)}</h3>
          <Difference before={old.join('\n')} after={now.join('\n')} />
        </div>
      ))}
    </>
  );
}
