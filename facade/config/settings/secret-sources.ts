/** Reads `secrets` of tollgate.yaml: sources of secrets that are not in the vault. Refuses replaceable programs. */
import { wordInside } from '../../secrets/secret-program-place.ts';
import type { SecretSource } from '../config.ts';
import { type ProblemReport, quote } from '../config-problems.ts';
import type { WrittenSecret } from '../written-config.ts';

/** Returns the sources by name of the secret. `workspace`: the folder in which agents write. */
export function buildSecretSources(
  written: Readonly<Record<string, WrittenSecret>>,
  report: ProblemReport,
  workspace?: string,
): ReadonlyMap<string, SecretSource> {
  const sources = new Map<string, SecretSource>();
  for (const [name, { env, exec, keychain = '' }] of Object.entries(written)) {
    const [program = ''] = exec ?? [];
    // A relative path would name another program when Tollgate starts in another folder.
    if (program.includes('/') && !program.startsWith('/'))
      report.refuse(
        ['secrets', name, 'exec', 0],
        `secret ${quote(name)}: a relative path leads to another program in another folder; write an absolute ` +
          'path, or a name on the PATH',
      );
    const inside = exec === undefined || workspace === undefined ? -1 : wordInside(exec, workspace);
    if (inside !== -1)
      report.refuse(
        ['secrets', name, 'exec', inside],
        `secret ${quote(name)}: this leads into the workspace, where agents write, and runs outside of every ` +
          'sandbox; move it elsewhere',
      );
    const slash = keychain.indexOf('/');
    if (env !== undefined) sources.set(name, { from: 'env', variable: env });
    else if (exec !== undefined) sources.set(name, { from: 'exec', command: exec });
    else sources.set(name, { from: 'keychain', service: keychain.slice(0, slash), account: keychain.slice(slash + 1) });
  }
  return sources;
}
