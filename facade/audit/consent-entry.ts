/** Owns what an audit record says of an act of consent: who decided what about whom; refuses what was shown by having no field for it. */
import type { AuditOutcome, AuditPrincipal } from './entry.ts';

/** An act of a person: an approval or a grant, given, refused, used or revoked. */
export interface ConsentEntry {
  readonly type: 'approval' | 'grant';
  readonly event: string;
  readonly id: string;
  readonly outcome: AuditOutcome;
  readonly principal: AuditPrincipal;
  readonly by?: string;
  readonly server?: string;
  readonly tool?: string;
  readonly effectDigest?: string;
  /** Of a grant. */
  readonly scope?: string;
  readonly kind?: string;
}
