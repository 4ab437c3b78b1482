/** Runs `policy check`: prints every error and warning of the rules. */
import type { PolicyFinding } from '../../../policies/authoring/authoring-port.ts';
import { ignoredRego } from '../../config/settings/policy-sources.ts';
import { approvedDefinitions } from '../../consent/servers/approved-tools.ts';
import { EXIT, type Io } from '../command-io.ts';
import { MAX_COLUMNS, paint, plural, printable, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type PathOptions, partsOf } from './written-policy.ts';

/** Exit code 2 if there is an error: Tollgate would not start. Throws what `Authoring.check` throws. */
export async function runPolicyCheck(
  options: PathOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const { config, ...parts } = partsOf(options, io);
  const checked = await authoring.check(
    config === undefined ? parts : { ...parts, offered: await approvedDefinitions(config) },
  );
  const { regoFiles, regoRules } = checked;
  const unused = config === undefined || options.paths.length > 0 ? [] : ignoredRego(config.folder, config.policies);
  const findings = [...checked.findings, ...unused.map((file): PolicyFinding => ({ ...file, severity: 'warning' }))];
  const yamlRules = Math.max(checked.yamlRules - parts.ownRules, 0);
  const errors = findings.filter(({ severity }) => severity === 'error').length;
  const warnings = findings.length - errors;
  const code = errors > 0 ? EXIT.usage : EXIT.ok;
  if (options.json === true) {
    const counts = { ok: errors === 0, errors, warnings, regoFiles, regoRules, yamlRules };
    io.stdout(`${JSON.stringify({ ...counts, findings })}\n`);
    return code;
  }
  const rego = regoFiles === 0 ? [] : [`${plural(regoRules, 'rule')} in ${plural(regoFiles, 'file')} of Rego`];
  const counts = [
    ...(errors > 0 ? [plural(errors, 'error')] : [`ok: ${plural(yamlRules, 'YAML rule')}`, ...rego]),
    ...(warnings > 0 ? [plural(warnings, 'warning')] : []),
  ];
  io.stdout([...findings.map((finding) => findingText(finding, io)), counts.join(', '), ''].join('\n'));
  return code;
}

function findingText({ file, line, column, severity, message }: PolicyFinding, io: Io): string {
  const word = paint(io, severity === 'error' ? 'red' : 'yellow', severity);
  const text = `${printable(file)}:${line}:${column}: ${word}: ${printable(message)}`;
  // Editors read one line for each finding.
  return io.isTTY ? wrapWords(text, MAX_COLUMNS, '    ') : text;
}
