/** The settings of the knowledge server: its limits per turn. The schema has validated them. */

/** Limits of one turn. The profiles that list the knowledge server decide whether there is one. */
export interface KnowledgeConfig {
  /** Questions; default 8. */
  readonly requests: number;
  /** Bytes of answers; default 32 KiB. */
  readonly bytes: number;
  /** Passages and facts in answers; default 50. */
  readonly candidates: number;
}

/** The schema has the same ones. */
export const KNOWLEDGE_DEFAULTS: KnowledgeConfig = { requests: 8, bytes: 32_768, candidates: 50 };
