/** Owns the list of everything that `doctor` can find, by stable ids; refuses findings that stand nowhere in it. */

/** Every finding, and whether `--fix` can mend it. docs/cli.md explains each. */
export const FINDINGS = {
  'node-version': 'by hand',
  configuration: 'by hand',
  'state-folder': 'fix',
  'vault-files': 'fix',
  'old-backups': 'fix',
  keychain: 'by hand',
  bypass: 'by hand',
  unapproved: 'by hand',
  'unusable-server': 'by hand',
  'fetching-server': 'by hand',
  'disabled-server': 'by hand',
  'program-missing': 'by hand',
  'script-missing': 'by hand',
  'secret-missing': 'by hand',
  bwrap: 'by hand',
  prlimit: 'by hand',
  socat: 'by hand',
  rg: 'by hand',
  opa: 'by hand',
  helpers: 'by hand',
  'sandbox-user': 'by hand',
  'user-namespaces': 'by hand',
  'sandbox-memory': 'by hand',
  'sandbox-proof': 'by hand',
  'no-sandbox': 'by hand',
  'container-client': 'by hand',
} as const;

/** Names a finding for good: scripts and pages rely on it. */
export type FindingId = keyof typeof FINDINGS;

/** One thing that was looked at. `weak`: what is there works without it, but with less; or a person should look. */
export interface DoctorFinding {
  readonly id: FindingId;
  readonly name: string;
  readonly state: 'ok' | 'weak' | 'missing';
  readonly seen: string;
  /** The command or the line that mends it. */
  readonly fix?: string;
  /** Mends it, where Tollgate can by itself: files of its own, and nothing that a person decided. */
  readonly mend?: () => void;
}

/** A program that a server is started with. */
export interface NeededProgram {
  readonly server: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
}

/** What of the machine a configuration needs; what is not needed can only be weak. */
export interface Needs {
  /** Absent when there is no configuration to say it. */
  readonly workspace?: string;
  readonly sandbox: boolean;
  readonly egress: boolean;
  readonly container: boolean;
  readonly rego: boolean;
  /** Of the servers that some profile reaches. */
  readonly programs: readonly NeededProgram[];
}

/** Looks at the machine; starts a sandbox to prove it. Never throws. */
export type Examine = (needs: Needs) => Promise<readonly DoctorFinding[]>;
