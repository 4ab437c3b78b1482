/** Makes git start no program that a repository names: any command of an agent can write the settings of a repository. */

/**
 * Settings that name a program, or let a repository name one. git reads the environment after all its files, so these values count. Not
 * here: drivers and aliases, whose names a repository chooses, and diff.external, which has no value that means none.
 */
const SETTINGS: readonly (readonly [key: string, value: string])[] = [
  // A folder that only looks like a repository is one when it is named (--git-dir): its settings come with the files.
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

/** For commands of agents, in a sandbox and outside of one. Settings of the user and of the system are not read. */
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
  // A missing object is not fetched by a program that a remote of the repository names (git 2.45 and later).
  GIT_NO_LAZY_FETCH: '1',
  GIT_CONFIG_COUNT: String(SETTINGS.length),
  ...Object.fromEntries(
    SETTINGS.flatMap(([key, value], index) => [
      [`GIT_CONFIG_KEY_${index}`, key],
      [`GIT_CONFIG_VALUE_${index}`, value],
    ]),
  ),
};
