/**
 * The origins that a caller can have: those of `listen.origins`, clients of principals, pages of this machine. Other
 * names are refused.
 */
import type { PrincipalConfig } from '../config.ts';
import { didYouMean, type Path, type ProblemReport, quote } from '../config-problems.ts';

/** A page of this machine, on any port. */
const LOOPBACK = /^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

/** Reports an origin that no caller can have. */
export function checkOrigin(
  origin: string,
  at: Path,
  {
    listed,
    principals,
    report,
  }: {
    readonly listed: readonly string[];
    readonly principals: readonly PrincipalConfig[];
    readonly report: ProblemReport;
  },
): void {
  const known = new Set([
    ...listed.map((one) => one.toLowerCase().replace(/\/$/, '')),
    ...principals.map(({ client }) => client),
  ]);
  if (!known.has(origin) && !LOOPBACK.test(origin))
    report.refuse(
      at,
      `origin ${quote(origin)} is no client of a principal, and no entry of listen.origins, so nobody has it; ${didYouMean(origin, known)}`,
    );
}
