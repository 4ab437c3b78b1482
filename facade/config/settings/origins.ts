/** Checks names of origins: those of `listen.origins`, clients of principals, and pages of this machine exist. */
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
      `no caller has origin ${quote(origin)}: it is neither in listen.origins nor a client of a principal; ` +
        `${didYouMean(origin, known)}`,
    );
}
