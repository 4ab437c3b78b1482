/** Owns the settings of the knowledge server: how much of it one turn may have; the schema has refused other forms already. */

/** Caps of one turn. Whether there is a knowledge server at all is said by the profiles that list it. */
export interface KnowledgeConfig {
  /** Questions; default 8. */
  readonly requests: number;
  /** Bytes of answers; default 32 KiB. */
  readonly bytes: number;
  /** Passages and facts in answers; default 50. */
  readonly candidates: number;
}

/** The schema names the same ones. */
export const KNOWLEDGE_DEFAULTS: KnowledgeConfig = { requests: 8, bytes: 32_768, candidates: 50 };
