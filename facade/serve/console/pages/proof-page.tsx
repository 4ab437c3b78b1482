/** The page of proof: the signed checkpoints of the log, and what a verification proves. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { request, runCommand, useLoaded } from './console-client.tsx';
import { counted, Facts, Json, Problem, Section, Shown, Time } from './page-parts.tsx';

/** How far the log is signed. */
interface ProofState {
  readonly origin?: string;
  readonly replica?: string;
  readonly last?: { readonly at: string; readonly size: number };
  readonly unsigned: number;
  readonly atLeast?: true;
  readonly keyInState: boolean;
  readonly witness?: { readonly confirmed?: number };
  readonly fault?: string;
}

/** Exit codes of `audit verify`: proven, changed, and an end that is not signed yet. */
const VERDICTS = [0, 3, 8];

/** The page at `/proof`. */
export function ProofPage(): JSX.Element {
  const proof = useLoaded('proof', (signal) => request<ProofState>('proof', undefined, signal));
  const [verdict, setVerdict] = useState<{ readonly exit: number; readonly data?: unknown }>();
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const verify = (): void => {
    setBusy(true);
    setError(undefined);
    runCommand('verify', {}, VERDICTS)
      .then(setVerdict)
      .catch(setError)
      .finally(() => {
        setBusy(false);
        proof.reload();
      });
  };
  return (
    <>
      <h1>Proof</h1>
      <Shown loaded={proof}>
        {({ origin, replica, last, unsigned, atLeast, keyInState, witness, fault }) => (
          <>
            {fault !== undefined && <p role="alert">{fault}</p>}
            <Facts
              facts={{
                Log: origin !== undefined && <code>{origin}</code>,
                Replica: replica,
                'Signed until': last === undefined ? 'nothing is signed yet' : <Time iso={last.at} />,
                'Records in it': last?.size,
                'Records after it': `${unsigned}${atLeast === true ? ' or more' : ''}, linked and not signed`,
                Key: keyInState
                  ? 'in the state folder: a person who holds the folder can sign too. Name another place: audit.signing'
                  : 'kept outside of the state folder',
                Witness:
                  witness === undefined
                    ? 'none: a rollback of the whole folder is found only against a checkpoint that you keep elsewhere'
                    : witness.confirmed === undefined
                      ? 'it gets each checkpoint'
                      : `it has cosigned ${counted(witness.confirmed, 'record')}`,
              }}
            />
            <p class="quiet">
              For a stranger: <code>tollgate audit key</code>, <code>tollgate audit checkpoint</code>,{' '}
              <code>tollgate audit prove ID</code>
            </p>
          </>
        )}
      </Shown>
      <div class="buttons">
        <button type="button" class="primary" onClick={verify} disabled={isBusy}>
          {isBusy ? 'Verifying every record …' : 'Verify the log'}
        </button>
      </div>
      {error !== undefined && <Problem error={error} />}
      {verdict !== undefined && (
        <Section title={verdict.exit === 0 ? 'Proven' : verdict.exit === 3 ? 'Changed' : 'Proven, except for its end'}>
          <Json value={verdict.data} />
        </Section>
      )}
    </>
  );
}
