/**
 * The environment in which git starts no program that a repository names. A command of an agent can write the settings
 * of any repository in the workspace.
 */

/**
 * Settings that name a program, or let a repository name one. git reads the environment after all files, so these
 * values win. Drivers and aliases are missing, because a repository chooses their names. diff.external is missing too,
 * because no value disables it.
 */
const SETTINGS: readonly (readonly [key: string, value: string])[] = [
  // A folder with the files of a repository is used as one if --git-dir names it, with the settings in these files.
  ['safe.bareRepository', 'explicit'],
  ['core.fsmonitor', 'false'],
  ['core.hooksPath', '/dev/null'],
  ['core.pager', 'cat'],
  ['core.editor', 'true'],
  ['sequence.editor', 'true'],
  ['core.askPass', 'true'],
  ['core.sshCommand', 'false'],
  ['core.gitProxy', ''],
  ['core.alternateRefsCommand', 'true'],
  // An empty value empties the list.
  ['credential.helper', ''],
  ['interactive.diffFilter', ''],
  ['gpg.program', 'false'],
  ['gpg.openpgp.program', 'false'],
  ['gpg.x509.program', 'false'],
  ['gpg.ssh.program', 'false'],
  ['gpg.ssh.defaultKeyCommand', ''],
  ['commit.gpgSign', 'false'],
  ['tag.gpgSign', 'false'],
  ['log.showSignature', 'false'],
  ['protocol.ext.allow', 'never'],
  ['submodule.recurse', 'false'],
  ['man.viewer', ''],
  ['help.browser', 'true'],
  ['web.browser', 'true'],
  ['browser.true.cmd', 'true'],
];

/** Environment for commands of agents, with and without a sandbox. Settings of the user and the system are not read. */
export const GIT_ENVIRONMENT: Readonly<Record<string, string>> = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_SYSTEM: '/dev/null',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_PAGER: 'cat',
  GIT_EDITOR: 'true',
  GIT_SEQUENCE_EDITOR: 'true',
  GIT_ASKPASS: 'true',
  SSH_ASKPASS: 'true',
  GIT_TERMINAL_PROMPT: '0',
  GIT_SSH_COMMAND: 'false',
  // Prevents fetching a missing object with a program that a remote of the repository names (git 2.45 and later).
  GIT_NO_LAZY_FETCH: '1',
  GIT_CONFIG_COUNT: String(SETTINGS.length),
  ...Object.fromEntries(
    SETTINGS.flatMap(([key, value], index) => [
      [`GIT_CONFIG_KEY_${index}`, key],
      [`GIT_CONFIG_VALUE_${index}`, value],
    ]),
  ),
};
