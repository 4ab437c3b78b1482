/** Declares the commands with which an owner decides: `approvals`, `grants`, `upgrades`, `plan` and `labels`. */
import { Option } from 'commander';
import { APPROVAL_SCOPES } from '../../../policies/port.ts';
import { GRANT_KINDS } from '../../consent/grants/grant.ts';
import { type CommandDefinition, readCount } from '../command-definition.ts';

const OWNER = 'the owner who decides';

/** `approvals list`, `show`, `watch`, `approve` and `deny`. */
export const APPROVALS: CommandDefinition = {
  usage: 'approvals',
  about: 'decide on calls that wait for a person',
  examples: `Examples:
  $ tollgate approvals list           what waits for a person?
  $ tollgate approvals watch          tell me when something waits
  $ tollgate approvals show k3m9      who, what, which rule, every argument
  $ tollgate approvals approve k3m9   look at it, then answer y
  $ tollgate approvals deny k3m9 --reason "Not on a Friday."`,
  commands: [
    {
      usage: 'list',
      about: 'show the calls that wait, are approved or are denied',
      as: OWNER,
      load: async () => (await import('./approvals-actions.ts')).runApprovalList,
    },
    {
      usage: 'show <id>',
      about: 'show all of one call; the beginning of an id is enough',
      as: OWNER,
      options: [new Option('--all', 'show long arguments completely')],
      load: async () => (await import('./approvals-actions.ts')).runApprovalShow,
    },
    {
      usage: 'watch',
      about: 'show requests as they come, until Ctrl-C',
      as: OWNER,
      load: async () => (await import('./approvals-watch.ts')).runApprovalWatch,
    },
    {
      usage: 'approve <id>',
      about: 'let this call be made, once',
      as: OWNER,
      options: [
        new Option('--for <scope>', 'what the approval covers, as far as the rules allow it')
          .choices(APPROVAL_SCOPES)
          .default('call'),
        new Option('--loop', 'approve a loop of code: the calls that `show` proposes, or as the next options say'),
        new Option('--max <n>', 'with --loop: the most calls').argParser(readCount(10_000)),
        new Option('--where <schema>', 'with --loop: JSON Schema that the arguments of each call satisfy'),
        new Option('--within <time>', 'with --loop: how long, such as 90s, 10m or 2h'),
        new Option('--yes <hash>', 'approve without a question: 12 or more digits of the binding that `show` prints'),
      ],
      load: async () => (await import('./approvals-actions.ts')).runApproveCall,
    },
    {
      usage: 'deny <id>',
      about: 'refuse this call, or withdraw an approval',
      as: OWNER,
      options: [new Option('--reason <text>', 'the reason that the caller is told')],
      load: async () => (await import('./approvals-actions.ts')).runDeny,
    },
  ],
};

const GRANT_PROFILE = new Option('--profile <name>', 'for this profile (default: default)');
const GRANT_SESSION = new Option('--session <id>', 'only for this session');
const GRANT_TAB = new Option('--tab <id>', 'only for this tab');

/** `grants list`, `add`, `revoke` and `check`. */
export const GRANTS: CommandDefinition = {
  usage: 'grants',
  about: 'decide what web origins may list, call and connect: once, always, or never',
  examples: `Examples:
  $ tollgate grants add https://a.example mcp:tools.list --profile harbor
  $ tollgate grants add https://a.example mcp:tools.call --tools files.read_file
  $ tollgate grants check https://a.example mcp:tools.call --tool files.stat
  $ tollgate grants list
Scopes: mcp:tools.list, mcp:tools.call, mcp:server.connect,
browser:activeTab.read, or the host's own scopes as namespace:word.word.`,
  commands: [
    {
      usage: 'list',
      about: 'show the grants that are valid now, the newest first',
      options: [
        new Option('--origin <origin>', 'only grants of this origin'),
        new Option('--profile <name>', 'only grants of this profile'),
      ],
      load: async () => (await import('./grants-actions.ts')).runGrantList,
    },
    {
      usage: 'add <origin> <scope>',
      about: 'give or deny a permission',
      as: OWNER,
      options: [
        GRANT_PROFILE,
        GRANT_SESSION,
        GRANT_TAB,
        new Option('--kind <kind>', 'once expires, always stays, deny refuses').choices(GRANT_KINDS).default('once'),
        new Option(
          '--tools <names>',
          "server.tool, server.* or '*', separated by commas; for these tools the grant also answers a rule that asks",
        ),
        new Option('--for <time>', 'how long, such as 90s, 10m, 12h or 7d; a grant of kind once lasts 10m'),
      ],
      load: async () => (await import('./grants-actions.ts')).runGrantAdd,
    },
    {
      usage: 'revoke <id>',
      about: 'withdraw a grant in every process, from the next call on; the beginning of an id is enough',
      as: OWNER,
      load: async () => (await import('./grants-actions.ts')).runGrantRevoke,
    },
    {
      usage: 'check <origin> <scope>',
      about: 'show whether a scope is granted: exit code 0 granted, 7 not decided, 3 denied',
      options: [GRANT_PROFILE, GRANT_SESSION, GRANT_TAB, new Option('--tool <name>', 'for this tool, as server.tool')],
      load: async () => (await import('./grants-actions.ts')).runGrantCheck,
    },
  ],
};

const COUNT = readCount(999_999_999_999);

/** `upgrades list`, `enable` and `disable`. */
export const UPGRADES: CommandDefinition = {
  usage: 'upgrades',
  about:
    'add capabilities that are off by default: PDF, Excel, code in memory, remote control, the desktop, ' +
    'other workspaces',
  examples: `Examples:
  $ tollgate upgrades list
  $ tollgate upgrades enable pdf --profile research --calls 20 --for 8h
  $ tollgate upgrades disable pdf`,
  commands: [
    {
      usage: 'list',
      about: 'show all: what each allows, who added it, how much it was used',
      load: async () => (await import('./upgrades-actions.ts')).runUpgradeList,
    },
    {
      usage: 'enable <name>',
      about: 'add a capability, from the next list and call on',
      as: OWNER,
      options: [
        new Option('--profile <name>', 'only for this profile (default: for every profile)'),
        new Option('--calls <number>', 'the calls that a session may make').argParser(COUNT),
        new Option('--bytes <number>', 'the bytes of results that a session may get').argParser(COUNT),
        new Option('--for <time>', 'how long, such as 30m, 8h or 7d (default: until it is disabled)'),
      ],
      load: async () => (await import('./upgrades-actions.ts')).runUpgradeEnable,
    },
    {
      usage: 'disable <name>',
      about: 'withdraw a capability in every process, from the next call on',
      as: OWNER,
      options: [new Option('--profile <name>', 'only from this profile (default: from every profile that has it)')],
      load: async () => (await import('./upgrades-actions.ts')).runUpgradeDisable,
    },
  ],
};

/** `plan list`, `approve` and `revoke`. */
export const PLAN: CommandDefinition = {
  usage: 'plan',
  about: 'approve the plans of runs in plan mode',
  examples: `Examples:
  $ tollgate plan list
  $ tollgate plan approve 6f1d9c0e5b7a4c1f8e2d3b4a5c6d7e8f`,
  commands: [
    {
      usage: 'list',
      about: 'show the runs in plan mode, the newest first',
      load: async () => (await import('./plan-actions.ts')).runPlanList,
    },
    {
      usage: 'approve <run>',
      about: 'let the run do more than read, until it ends or a day has passed',
      as: OWNER,
      fixed: { approve: true },
      load: async () => (await import('./plan-actions.ts')).runPlanDecision,
    },
    {
      usage: 'revoke <run>',
      about: 'withdraw the approval of a plan',
      as: OWNER,
      fixed: { approve: false },
      load: async () => (await import('./plan-actions.ts')).runPlanDecision,
    },
  ],
};

/** `labels list` and `clear`. */
export const LABELS: CommandDefinition = {
  usage: 'labels',
  about: 'show and clear sticky labels',
  examples: `Examples:
  $ tollgate labels list
  $ tollgate labels clear alice untrusted`,
  commands: [
    {
      usage: 'list',
      about: 'show which principal has which labels',
      as: OWNER,
      load: async () => (await import('./labels-actions.ts')).runLabelList,
    },
    {
      usage: 'clear <principal> [labels...]',
      about: 'clear labels of a principal, or all',
      as: OWNER,
      load: async () => (await import('./labels-actions.ts')).runLabelClear,
    },
  ],
};

/** `budgets` and `budgets reset`. */
export const BUDGETS: CommandDefinition = {
  usage: 'budgets',
  about: 'show what is spent and left of each budget, and when it returns',
  shared: ['config', 'json'],
  as: OWNER,
  examples: `Examples:
  $ tollgate budgets
  $ tollgate budgets reset pushes
  $ tollgate budgets reset pushes alice  only the counter of alice`,
  load: async () => (await import('./budgets-actions.ts')).runBudgetList,
  commands: [
    {
      usage: 'reset <budget> [key]',
      about: 'make a budget full again, for one key or for all',
      as: OWNER,
      load: async () => (await import('./budgets-actions.ts')).runBudgetReset,
    },
  ],
};
