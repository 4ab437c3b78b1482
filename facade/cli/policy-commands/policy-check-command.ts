/** Owns `policy check`: what is shown of the findings, and that an error ends with a code of its own. */
import type { PolicyFinding } from '../../../policies/authoring/authoring-port.ts';
import { ignoredRego } from '../../config/settings/policy-sources.ts';
import { approvedDefinitions } from '../../consent/servers/approved-tools.ts';
import { EXIT, type Io } from '../command-io.ts';
import { paint, plural, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type PathOptions, partsOf } from './written-policy.ts';

/** Exit code 0 without errors, 2 with one: the policy would not start. Throws what `Authoring.check` throws. */
export async function runPolicyCheck(
  options: PathOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const { config, ...parts } = partsOf(options, io);
  const {
    findings: found,
    regoFiles,
    regoRules,
    ...checked
  } = await authoring.check(config === undefined ? parts : { ...parts, offered: await approvedDefinitions(config) });
  const strays = config === undefined || options.paths.length > 0 ? [] : ignoredRego(config.folder, config.policies);
  const findings = [...found, ...strays.map((stray): PolicyFinding => ({ ...stray, severity: 'warning' }))];
  const yamlRules = Math.max(checked.yamlRules - parts.ownRules, 0);
  const errors = findings.filter(({ severity }) => severity === 'error').length;
  const code = errors > 0 ? EXIT.usage : EXIT.ok;
  if (options.json === true) {
    io.stdout(
      `${JSON.stringify({ ok: errors === 0, errors, warnings: findings.length - errors, regoFiles, regoRules, yamlRules, findings })}\n`,
    );
    return code;
  }
  io.stdout(findings.map((finding) => `${show(finding, io)}\n`).join(''));
  const counts =
    errors > 0
      ? plural(errors, 'error')
      : `ok: ${plural(yamlRules, 'YAML rule')}${regoFiles === 0 ? '' : `, ${plural(regoRules, 'rule')} in ${plural(regoFiles, 'file')} of Rego`}`;
  const warnings = findings.length > errors ? `, ${plural(findings.length - errors, 'warning')}` : '';
  io.stdout(`${counts}${warnings}\n`);
  return code;
}

function show({ file, line, column, severity, message }: PolicyFinding, io: Io): string {
  return `${printable(file)}:${line}:${column}: ${severity === 'error' ? paint(io, 'red', 'error') : paint(io, 'yellow', 'warning')}: ${printable(message)}`;
}
