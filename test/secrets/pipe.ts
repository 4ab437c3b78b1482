/** Stores a secret in tests: by the command, through its stdin. */
import { start } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';

/** Stores a value. Throws the output of the command if it fails. */
export async function pipeValue(project: Project, name: string, value: string): Promise<void> {
  const running = start(project, ['secret', 'set', name]);
  running.stdin.end(value);
  const { code, err } = await running.ended;
  if (code !== 0) throw new Error(err);
}
