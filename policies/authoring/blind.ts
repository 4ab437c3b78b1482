/** Owns the warning about rules that watch paths or URLs of commands: they hold, and see less than they seem to; refuses nothing. */
import { PRIMITIVE_SEMANTICS } from '../../catalogs/primitives/semantics.ts';
import type { LocatedRule } from '../rules.ts';
import type { Finding } from './lint.ts';

const ABOUT = {
  paths: 'only its `cwd` is a path',
  insideWorkspace: 'only its `cwd` is a path',
  hosts: 'no host is known',
  schemes: 'no URL is known',
  urls: 'no URL is known',
} as const;
const COMMANDS = [...PRIMITIVE_SEMANTICS].flatMap(([tool, { command }]) =>
  command === undefined ? [] : [`workspace.${tool}`],
);

/** Rules that deny or ask, are about commands alone, and ask for what commands do not show: `cat .env` names no path. */
export function findBlind(rules: readonly LocatedRule[]): readonly Finding[] {
  return rules
    .filter(({ rule, mode }) => rule.outcome !== 'allow' && mode !== 'off' && isOfCommands(rule.when))
    .flatMap(({ rule, at }) => {
      const fields = (Object.keys(ABOUT) as (keyof typeof ABOUT)[])
        .filter((field) => rule.when[field] !== undefined)
        .slice(0, 1);
      return fields.map(
        (field): Finding => ({
          ...at(['when', field], 'key'),
          severity: 'warning',
          message: `of a command ${ABOUT[field]}: what its words name is not seen here. Close it in the sandbox of bash, or match \`commands\``,
        }),
      );
    });
}

function isOfCommands({ verbs, tools }: LocatedRule['rule']['when']): boolean {
  return verbs?.join() === 'execute' || (tools?.every((tool) => COMMANDS.includes(tool)) ?? false);
}
