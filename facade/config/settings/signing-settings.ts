/** Reads how the audit log is signed, and refuses keys and witnesses that an agent could change. */
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { parseVerifierKey } from '../../audit/proof/signed-note.ts';
import type { SigningConfig } from '../../audit/proof/signing-key.ts';
import { wordInside } from '../../secrets/secret-program-place.ts';
import type { ProblemReport } from '../config-problems.ts';
import { realPath } from '../reading/text-files.ts';
import { DEFAULTS, type WrittenConfig } from '../written-config.ts';
import { durationMs } from './sections.ts';

type WrittenSigning = NonNullable<NonNullable<WrittenConfig['audit']>['signing']>;

/** Begins the name of a secret. */
const SECRET = 'secret:';

interface SigningContext {
  readonly resolve: (written: string) => string;
  readonly report: ProblemReport;
  readonly workspace?: string | undefined;
}

/** Returns the settings with their defaults, and reports those that cannot be used. */
export function buildSigning(
  written: WrittenSigning | undefined,
  { resolve, report, workspace }: SigningContext,
): SigningConfig {
  const { key: place, every, within, witness } = { ...DEFAULTS.audit.signing, ...written };
  const at = (...path: readonly (string | number)[]) => ['audit', 'signing', ...path];
  const secret = place?.startsWith(SECRET) === true ? place.slice(SECRET.length) : undefined;
  const key = place === undefined || secret !== undefined ? undefined : realPath(resolve(place));
  if (key !== undefined && workspace !== undefined && isPathWithin(key, workspace))
    report.refuse(at('key'), 'the key is in the workspace, so an agent could sign a changed log; move it elsewhere');
  if (witness !== undefined) checkWitness(witness, { at, report, workspace });
  return {
    every,
    withinMs: durationMs(within),
    ...(key !== undefined && { key }),
    ...(secret !== undefined && { secret }),
    ...(witness !== undefined && { witness }),
  };
}

function checkWitness(
  { command, key }: NonNullable<WrittenSigning['witness']>,
  {
    at,
    report,
    workspace,
  }: Omit<SigningContext, 'resolve'> & { readonly at: (...path: readonly (string | number)[]) => (string | number)[] },
): void {
  const [program = ''] = command;
  if (program.includes('/') && !program.startsWith('/'))
    report.refuse(
      at('witness', 'command', 0),
      'a relative path leads to another program in another folder; write an absolute path, or a name on the PATH',
    );
  const inside = workspace === undefined ? -1 : wordInside(command, workspace);
  if (inside !== -1)
    report.refuse(
      at('witness', 'command', inside),
      'this leads into the workspace, where agents write, and runs outside of every sandbox; move it elsewhere',
    );
  if (key !== undefined && parseVerifierKey(key)?.type !== 4)
    report.refuse(at('witness', 'key'), 'it is no verifier key of a witness (name+id+key, C2SP); copy it again');
}
