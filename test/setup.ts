/** Owns what must be installed once before any test runs: the real servers, the real `opa`, and what sandboxes and search are made with. */
import { installServers } from './servers/install.ts';
import { installSystem } from './servers/system.ts';

export default async function setup(): Promise<void> {
  const say = (line: string): boolean => process.stderr.write(`${line}\n`);
  await installServers(say);
  installSystem(say);
}
