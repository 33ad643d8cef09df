/** The names of all rules, those whose advice matters most first. */
export const RULE_NAMES = [
  'invalid_index',
  'integer_key_near_end',
  'sequence_near_end',
  'definer_without_search_path',
  'no_primary_key',
  'foreign_key_without_index',
  'duplicate_index',
  'large_sequential_scans',
  'never_analyzed',
  'unused_index',
  'no_row_security_with_read_keys',
  'timestamp_without_time_zone',
  'json_instead_of_jsonb',
] as const;

export type RuleName = (typeof RULE_NAMES)[number];

export const SEVERITIES = ['warning', 'info'] as const;
export type Severity = (typeof SEVERITIES)[number];

export interface Rule {
  readonly name: RuleName;
  readonly severity: Severity;
  /**
   * A SELECT over the lists of `relations.ts`: schema, table, object, message, and the statement that cures it, or NULL. Identifiers are
   * quoted by the server (`%I`).
   */
  readonly sql: string;
}
