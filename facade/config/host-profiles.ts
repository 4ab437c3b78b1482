/** Checks that host profiles share no server, primitive or principal with other profiles (CY-09). */
import { type ProblemReport, quote } from './config-problems.ts';
import { backendsOf } from './servers/configured-routes.ts';
import type { WrittenConfig, WrittenProfile } from './written-config.ts';

const SEPARATE = 'servers that act on the machine itself must not be mixed with servers in a sandbox';

/** Reports each server, primitive and principal that a host profile shares with another profile. */
export function checkHostProfiles(written: WrittenConfig, report: ProblemReport): void {
  // The default profile exists even if the file does not define it.
  const profiles = Object.entries<WrittenProfile>({ default: {}, ...written.profiles });
  const hostProfiles = new Set(profiles.filter(([, profile]) => profile.host === true).map(([name]) => name));
  if (hostProfiles.size === 0) return;
  const serversOf = (name: string): readonly string[] => [
    ...(written.profiles?.[name]?.servers ?? []),
    ...Object.entries(written.servers ?? {})
      .filter(([, server]) => server.profiles?.includes(name) === true)
      .map(([server]) => server),
  ];
  const hostServers = new Set([...hostProfiles].flatMap(serversOf));
  for (const [name, { expose }] of profiles) {
    const path = ['profiles', name];
    if (!hostProfiles.has(name)) {
      const shared = [...serversOf(name), ...backendsOf(expose ?? written.expose)].find((server) =>
        hostServers.has(server),
      );
      if (shared !== undefined)
        report.refuse(
          path,
          `server ${quote(shared)} is in a host profile too: ${SEPARATE}; remove it from one of them`,
        );
      continue;
    }
    if (backendsOf(expose).length > 0)
      report.refuse(
        [...path, 'expose', 'primitives'],
        `a host profile has no primitives: ${SEPARATE}; remove the line, and use another profile for them`,
      );
    for (const server of serversOf(name)) {
      if (written.servers?.[server]?.isolation !== 'direct')
        report.refuse(
          [...path, 'host'],
          `server ${quote(server)} does not run with isolation: direct: ${SEPARATE}; write isolation: direct, or ` +
            'use another profile',
        );
    }
  }
  for (const [value, name] of Object.entries(written.listen?.jwt?.claims?.profiles?.values ?? {}))
    if (hostProfiles.has(name))
      report.refuse(
        ['listen', 'jwt', 'claims', 'profiles', 'values', value],
        `profile ${quote(name)} is a host profile, and a subject may have other profiles too: ${SEPARATE}; make a ` +
          'principal of tollgate.yaml for it',
      );
  written.principals?.forEach(({ profiles: names = [] }, index) => {
    const [host] = names.filter((name) => hostProfiles.has(name));
    if (host !== undefined && names.some((name) => !hostProfiles.has(name)))
      report.refuse(
        ['principals', index, 'profiles'],
        `profile ${quote(host)} is a host profile, and the principal has other profiles too: ${SEPARATE}; make a ` +
          'separate principal for it',
      );
  });
}
