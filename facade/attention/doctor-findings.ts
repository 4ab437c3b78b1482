/** Lists everything that `doctor` can find, by stable ids. */

/** Every finding, and whether `--fix` can repair it. docs/cli.md explains each. */
export const FINDINGS = {
  'node-version': 'by hand',
  configuration: 'by hand',
  'state-folder': 'fix',
  'vault-files': 'fix',
  'old-backups': 'fix',
  keychain: 'by hand',
  bypass: 'by hand',
  unapproved: 'by hand',
  'changed-approval': 'by hand',
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

/** The id of a finding. It never changes, because scripts and docs use it. */
export type FindingId = keyof typeof FINDINGS;

/**
 * One thing that was examined. `weak`: the configuration works without it, but with less; or a person should look at
 * it.
 */
export interface DoctorFinding {
  readonly id: FindingId;
  readonly name: string;
  readonly state: 'ok' | 'weak' | 'missing';
  readonly seen: string;
  /** The command or the line that repairs it. */
  readonly fix?: string;
  /** Repairs it, if Tollgate can. It changes only Tollgate's own files, and no decision of a person. */
  readonly repair?: () => void;
}

/** A program that a server is started with. */
export interface NeededProgram {
  readonly server: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
}

/** What a configuration needs of the machine. Something that is not needed can only be `weak`. */
export interface Needs {
  /** Absent when there is no configuration. */
  readonly workspace?: string;
  readonly sandbox: boolean;
  readonly egress: boolean;
  readonly container: boolean;
  readonly rego: boolean;
  /** Of the servers that at least one profile reaches. */
  readonly programs: readonly NeededProgram[];
}

/** Examines the machine, and starts a sandbox to test it. Never throws. */
export type Examine = (needs: Needs) => Promise<readonly DoctorFinding[]>;
