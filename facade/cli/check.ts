/** Owns `check`: configuration and policy are read as at a start, nothing is started or opened for writing. */
import type { Check } from '../assembled.ts';
import { EXIT, type Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';

/** Prints what was read and what was reported on; throws what refuses the load. */
export async function runCheck(options: CommonOptions, io: Io, check: Check): Promise<number> {
  const config = readConfig(options, io);
  const revision = await check(config, options.opa === undefined ? {} : { opa: options.opa });
  const facts = {
    file: config.file, servers: config.servers.size, principals: config.principals.length, profiles: config.profiles.size,
    policies: config.policies.length, rules: config.rules.length, revision, warnings: config.warnings,
  };
  if (options.json === true) {
    io.stdout(`${JSON.stringify(facts)}\n`);
    return EXIT.ok;
  }
  for (const { file, line, column, message } of config.warnings) io.stderr(`${file}:${line}:${column}: ${message}\n`);
  const unused = config.rules.length + config.policies.length === 0 ? 'No rule and no policy: every call is denied.\n' : '';
  io.stdout(`ok: ${facts.servers} servers, ${facts.principals} principals, ${facts.profiles} profiles, ${facts.rules} rules, ${facts.policies} policies (revision ${revision.slice(0, 12)})\n${unused}`);
  return EXIT.ok;
}
