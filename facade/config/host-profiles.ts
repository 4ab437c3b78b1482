/** Keeps host profiles apart from all others (CY-09): no server, primitive or principal may be in both. */
import { type ProblemReport, quote } from './config-problems.ts';
import { backendsOf } from './servers/configured-routes.ts';
import type { WrittenConfig, WrittenProfile } from './written-config.ts';

const MIXED = 'servers that act on the machine itself must not be mixed with servers in a sandbox';

/** Reports every mixture of a host profile with something else. */
export function checkHostProfiles(written: WrittenConfig, report: ProblemReport): void {
  // The default profile exists without being written.
  const profiles = Object.entries<WrittenProfile>({ default: {}, ...written.profiles });
  const hosts = new Set(profiles.filter(([, profile]) => profile.host === true).map(([name]) => name));
  if (hosts.size === 0) return;
  const serversOf = (name: string): readonly string[] => [
    ...(written.profiles?.[name]?.servers ?? []),
    ...Object.entries(written.servers ?? {})
      .filter(([, server]) => server.profiles?.includes(name) === true)
      .map(([server]) => server),
  ];
  const onHost = new Set([...hosts].flatMap(serversOf));
  for (const [name, { expose }] of profiles) {
    const path = ['profiles', name];
    if (!hosts.has(name)) {
      const both = [...serversOf(name), ...backendsOf(expose ?? written.expose)].find((server) => onHost.has(server));
      if (both !== undefined)
        report.refuse(path, `server ${quote(both)} is in a host profile too: ${MIXED}; remove it from one of them`);
      continue;
    }
    if (backendsOf(expose).length > 0)
      report.refuse(
        [...path, 'expose', 'primitives'],
        `a host profile has no primitives: ${MIXED}; remove the line, and use another profile for them`,
      );
    for (const server of serversOf(name)) {
      if (written.servers?.[server]?.isolation !== 'direct')
        report.refuse(
          [...path, 'host'],
          `server ${quote(server)} does not run with isolation: direct: ${MIXED}; write isolation: direct, or use another profile`,
        );
    }
  }
  written.principals?.forEach(({ profiles: names = [] }, index) => {
    const [host] = names.filter((name) => hosts.has(name));
    if (host !== undefined && names.some((name) => !hosts.has(name)))
      report.refuse(
        ['principals', index, 'profiles'],
        `profile ${quote(host)} is a host profile, and the principal has other profiles too: ${MIXED}; make a separate principal for it`,
      );
  });
}
