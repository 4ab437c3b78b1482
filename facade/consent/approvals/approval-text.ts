/**
 * Shows a request for approval completely, with every argument as it will be sent, at a terminal or in a form. It never
 * cuts a text without saying so, and no text can control the terminal.
 */
import { marked, plural } from '../../../catalogs/text/readable-text.ts';
import type { Redactor } from '../../output/redactor.ts';
import { type Approval, shortHash } from './call-approval.ts';
import type { ShownRun } from './loop-approval.ts';

/** Characters of an argument that are shown without `--all`. */
const PAGE = 2000;

/** Returns a request as text for a person. `isWhole`: show long arguments completely. */
export function approvalText(
  item: Approval,
  { redactor, now, isWhole }: { readonly redactor: Redactor; readonly now: number; readonly isWhole: boolean },
): string {
  const { principal, effect } = item.binding;
  const { id, role, profiles, origin } = principal;
  const decided = item.decided === undefined ? '' : ` by ${item.decided.by}`;
  const [age, rest] = [now - item.asked, item.expires - now].map(durationText);
  const rows: readonly (readonly [string, string])[] = [
    ['approval', `${item.id}  ${item.state}${decided}, asked ${age} ago, expires in ${rest}`],
    ...(item.state === 'withdrawn' ? [['ended', item.decided?.reason ?? ''] as [string, string]] : []),
    ['principal', `${id} (role ${role}, profile ${profiles.join(', ')}, origin ${origin})`],
    ['run', item.run],
    ['tool', `${effect.server}.${effect.tool} (${effect.verb})`],
    ...item.reasons.map((reason): [string, string] => [
      'rule',
      `${reason.id}${reason.file === undefined ? '' : ` (${reason.file}:${reason.line})`}: ${reason.message}`,
    ]),
    ...effect.paths.map(({ argument, path, inside }): [string, string] => [
      'path',
      `${argument}: ${path}${inside ? '' : ' (outside the workspace)'}`,
    ]),
    ...effect.urls.flatMap(({ argument, url, host, address }): [string, string][] => [
      ['url', `${argument}: ${url}`],
      [
        'reaches',
        host === ''
          ? 'a host that cannot be read from the address'
          : `${host}${address === undefined || address === '' ? '' : ` (${address})`}`,
      ],
    ]),
    ...(effect.command?.opaque === true
      ? [['command', 'starts other programs, or cannot be analysed'] as [string, string]]
      : []),
    ['covers', coverage(item)],
    ['binding', `${shortHash(item)}, the hash of this request for --yes`],
  ];
  const head = rows.map(([name, text]) => `${name.padEnd(10)} ${marked(text)}`);
  const secrets = item.concealed === 0 ? '' : `, ${plural(item.concealed, 'secret')} shown as ***`;
  const ending = item.asking === undefined ? [] : runLines(item, isWhole);
  const lines = [
    ...head,
    `arguments  ${item.argsText.length} characters${secrets}`,
    ...argumentLines(item, isWhole),
    ...ending,
  ];
  return `${redactor.redact(lines.join('\n')).value.replaceAll('[redacted]', '***')}\n`;
}

/** Shows the run of code that asks: its code, what it has done, and what would follow. */
function runLines({ asking, loop }: Approval, isWhole: boolean): readonly string[] {
  const { id = '', again, shown } = asking ?? {};
  const unknown =
    again === undefined
      ? []
      : ['outcome    not known: this call may have run before the run was interrupted. Approving makes it again.'];
  if (shown === undefined) return [...unknown, `code run   ${id}`];
  const { code, made, planned, end, proposal } = shown;
  const terms = loop ?? proposal;
  const calls = (list: ShownRun['made']): readonly string[] =>
    list.map(({ seq, tool, args, outcome }) => `  ${seq}. ${marked(tool)} ${marked(args)} (${OUTCOMES[outcome]})`);
  return [
    ...unknown,
    `code run   ${id}, ${plural(code.split('\n').length, 'line')}`,
    ...blockOf('code', JSON.stringify(`${code}\n`), isWhole),
    `made       ${plural(made.length, 'call')} so far`,
    ...calls(made),
    `would make ${plural(planned.length, 'call')}, by a dry run in which only reads were made`,
    ...calls(planned),
    `  ${marked(end)}`,
    ...(again === undefined
      ? [
          `${loop === undefined ? '--loop    ' : 'loop      '} at most ${plural(terms.max, 'call')} of this tool ` +
            `by this run, within ${durationText(terms.withinMs)}, with arguments that satisfy`,
          `  ${marked(JSON.stringify(terms.where))}`,
        ]
      : []),
  ];
}

const OUTCOMES = {
  done: 'was made',
  failed: 'failed',
  unknown: 'may have run',
  allow: 'the policy allows it',
  ask: 'the policy asks a person',
} as const;

function coverage({ scope, widest, uses, state, loop, binding: { effect, principal } }: Approval): string {
  if (loop !== undefined)
    return `${uses} of at most ${plural(loop.max, 'call')} of this loop, until ${new Date(loop.until).toISOString()}`;
  const words = {
    call: 'this call, once',
    group: `calls of ${effect.server} that the same rules ask about, by ${principal.id} in this run`,
    server: `all calls of ${effect.server} that may be approved in this way, by ${principal.id} in this run`,
  };
  if (state === 'approved' && scope !== 'call') return `${words[scope]}; used ${plural(uses, 'time')}`;
  return widest === 'call' ? words[scope] : `${words[scope]}; --for ${widest} widens it to ${words[widest]}`;
}

/** Shows each argument separately if that says the same as the text that is sent; else the text. */
function argumentLines({ argsText }: Approval, isWhole: boolean): readonly string[] {
  const value = JSON.parse(argsText) as Readonly<Record<string, unknown>>;
  if (JSON.stringify(value) !== argsText) return blockOf('', argsText, isWhole);
  return Object.entries(value).flatMap(([name, one]) =>
    blockOf(JSON.stringify(name).slice(1, -1), JSON.stringify(one), isWhole),
  );
}

/**
 * Shows JSON as it is sent: on one line if it fits, a long text in its own lines. Characters that a terminal would not
 * show become \u{…}.
 */
function blockOf(name: string, text: string, isWhole: boolean): readonly string[] {
  const shown = isWhole || text.length <= PAGE ? text : text.slice(0, PAGE);
  const isText = text.startsWith('"') && text.includes('\\n');
  const rest =
    shown.length === text.length ? [] : [`    [${shown.length} of ${text.length} characters; the rest: --all]`];
  if (!isText) return [`  ${marked(name)}${name === '' ? '' : ': '}${marked(shown)}`, ...rest];
  // A line end within a text is shown as a line end. Every other escape stays as in JSON.
  const lines = shown.split(/(?<!\\)((?:\\\\)*)\\n/);
  return [`  ${marked(name)}:`, ...joinLines(lines).map((line) => `    | ${marked(line)}`), ...rest];
}

/** Joins the parts of a split that kept the backslashes before a line end. */
function joinLines(parts: readonly string[]): readonly string[] {
  const lines: string[] = [];
  for (let at = 0; at < parts.length; at += 2) lines.push(`${parts[at] ?? ''}${parts[at + 1] ?? ''}`);
  return lines;
}

/** Returns a time in seconds or minutes, for people. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}
