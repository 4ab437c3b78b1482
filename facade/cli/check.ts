/** Owns `check`: configuration and policy are read as at a start, nothing is started or opened for writing. */
import type { Check } from '../assembled.ts';
import { EXIT, type Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';
import { plural } from './print.ts';

/** Prints what was read and what was reported on; throws what refuses the load. */
export async function runCheck(options: CommonOptions, io: Io, check: Check): Promise<number> {
  const config = readConfig(options, io);
  const { revision, rules } = await check(config, options.opa === undefined ? {} : { opa: options.opa });
  const facts = {
    file: config.file, servers: config.servers.size, principals: config.principals.length, profiles: config.profiles.size,
    policies: config.policies.length, rules, revision, warnings: config.warnings,
  };
  if (options.json === true) {
    io.stdout(`${JSON.stringify(facts)}\n`);
    return EXIT.ok;
  }
  for (const { file, line, column, message } of config.warnings) io.stderr(`${file}:${line}:${column}: ${message}\n`);
  const isEmpty = rules === 0 && config.policies.every(({ kind, mode }) => kind === 'yaml' || mode === 'off');
  const parts = [plural(facts.servers, 'server'), plural(facts.principals, 'principal'), plural(facts.profiles, 'profile'), `${plural(rules, 'YAML rule')} in all`, plural(facts.policies, 'policy source')];
  io.stdout(`ok: ${parts.join(', ')} (revision ${revision.slice(0, 12)})\n${isEmpty ? 'No rule and no policy: every call is denied.\n' : ''}`);
  return EXIT.ok;
}
