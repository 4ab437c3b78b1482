/** The page of proof: the signed checkpoints of the log, and what a verification proves. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { request, runCommand, useLoaded } from './console-client.tsx';
import { Facts, Json, Preformatted, Problem, Section, Shown, Time } from './page-parts.tsx';

/** How far the log is signed. */
interface ProofState {
  readonly checkpoint?: { readonly at: string; readonly size: number; readonly note: string };
  readonly unsigned: number;
  readonly keyInState: boolean;
  readonly publicKey?: string;
  readonly witness?: unknown;
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
        {({ checkpoint, unsigned, keyInState, publicKey, witness, fault }) => (
          <>
            {fault !== undefined && <p role="alert">{fault}</p>}
            <Facts
              facts={{
                'Signed until': checkpoint === undefined ? 'nothing is signed yet' : <Time iso={checkpoint.at} />,
                'Records in it': checkpoint?.size,
                'Records after it': `${unsigned}, linked and not signed`,
                Key: keyInState
                  ? 'in the state folder: whoever holds the folder can sign too. Keep it elsewhere: audit.signing'
                  : 'kept outside of the state folder',
                'Public key': publicKey !== undefined && <code>{publicKey}</code>,
                Witness:
                  witness === undefined ? (
                    'none: a rollback of the whole folder cannot be noticed here'
                  ) : (
                    <Json value={witness} />
                  ),
              }}
            />
            {checkpoint !== undefined && (
              <Section title="Last checkpoint">
                <Preformatted>{checkpoint.note}</Preformatted>
              </Section>
            )}
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
