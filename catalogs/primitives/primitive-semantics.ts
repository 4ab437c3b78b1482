/**
 * What the arguments of the four primitives mean on the internal workspace, for the server that runs them and for the
 * check of rules about them.
 */
import type { Semantics } from '../tools/tool-definition.ts';

/** By name: read, write, edit, bash. */
export const PRIMITIVE_SEMANTICS: ReadonlyMap<'read' | 'write' | 'edit' | 'bash', Semantics> = new Map([
  ['read', { verb: 'read', paths: ['path'] }],
  ['write', { verb: 'write', paths: ['path'] }],
  ['edit', { verb: 'write', paths: ['path'] }],
  [
    'bash',
    {
      verb: 'execute',
      paths: ['cwd'],
      command: 'command',
      byArgument: { argument: 'action', verbs: { poll: 'read', list: 'read' } },
    },
  ],
]);
