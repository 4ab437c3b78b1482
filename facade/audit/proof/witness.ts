/**
 * The witness: a program of the owner that gets each checkpoint on stdin, so that it is kept where no one who holds the
 * log can change it. It is not believed: a cosignature counts only if it is of this checkpoint and of the known key.
 */
import { runOwnerProgram } from '../../secrets/secret-program.ts';
import { findCosignature, parseVerifierKey } from './signed-note.ts';
import type { WitnessConfig } from './signing-key.ts';

/**
 * Gives a note to the witness. Returns its cosignature line, nothing for a witness without a key, or why the answer
 * does not count, as the end of a sentence. Never rejects.
 */
export async function askWitness(
  { command, key }: WitnessConfig,
  note: string,
  { workspace, signal }: { readonly workspace: string; readonly signal: AbortSignal },
): Promise<{ readonly cosignature?: string } | { readonly failed: string }> {
  const answer = await runOwnerProgram({ command, env: process.env, workspace, input: note, signal });
  if ('failed' in answer || key === undefined) return 'failed' in answer ? answer : {};
  const witness = parseVerifierKey(key);
  const found = witness === undefined ? undefined : findCosignature(note, answer.printed, witness);
  return found === undefined
    ? { failed: 'printed no valid cosignature of this checkpoint with its key' }
    : { cosignature: found.line };
}
