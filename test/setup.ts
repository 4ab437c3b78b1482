/** Owns what must be installed once before any test runs: the real servers and the real `opa`. */
import { installServers } from './servers/install.ts';

export default async function setup(): Promise<void> {
  await installServers((line) => process.stderr.write(`${line}\n`));
}
