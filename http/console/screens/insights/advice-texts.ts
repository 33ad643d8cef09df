/** What a rule is about. */
export interface RuleText {
  readonly title: string;
  /** Why it matters, in one sentence. */
  readonly why: string;
  /** Each message says the same as `why`. */
  readonly isAlike?: boolean;
  /** What to know before the cure is applied. */
  readonly caution?: string;
}

const REWRITES = 'The statement rewrites the table, and locks it meanwhile.';

const RULES: Readonly<Record<string, RuleText>> = {
  invalid_index: {
    title: 'Invalid indexes',
    why: 'Queries do not use such an index, and writes go on to maintain it. Its concurrent build has failed, or is still running.',
    isAlike: true,
  },
  integer_key_near_end: {
    title: 'Keys that run out of numbers',
    why: 'When the last number of the type is used up, every INSERT fails.',
    caution: REWRITES,
  },
  sequence_near_end: {
    title: 'Sequences that run out of numbers',
    why: 'When the last number is used up, whatever asks for the next one fails.',
  },
  definer_without_search_path: {
    title: 'Definer routines without a search path',
    why: 'Such a routine runs with the rights of its owner. Its caller decides with the search path, or with temporary objects, what its names mean.',
    caution: 'Names that it uses of other schemas than its own and public have to be qualified then, or added to the path.',
  },
  no_primary_key: {
    title: 'Tables without a primary key',
    why: 'Rows cannot be told apart, and logical replication cannot update them.',
    isAlike: true,
    caution: REWRITES,
  },
  foreign_key_without_index: {
    title: 'Foreign keys without an index',
    why: 'Deleting a row that is referred to has to look through the whole table that refers to it.',
  },
  duplicate_index: {
    title: 'Duplicate indexes',
    why: 'Two indexes that do the same cost twice the space, and twice the time with each write.',
  },
  large_sequential_scans: {
    title: 'Large sequential scans',
    why: 'A large table that is read from its beginning again and again often lacks an index.',
  },
  never_analyzed: {
    title: 'Tables that were never analyzed',
    why: 'Without statistics of its values the planner guesses, and may choose a slow plan.',
  },
  unused_index: { title: 'Unused indexes', why: 'An index that no query uses costs space, and time with each write.' },
  no_row_security_with_read_keys: {
    title: 'Tables that read keys see whole',
    why: 'There are read keys, and without row security they see all rows of these tables.',
    isAlike: true,
    caution: 'With row security, read keys see no row at all until a policy lets them.',
  },
  timestamp_without_time_zone: {
    title: 'Timestamps without a time zone',
    why: 'Which instant such a timestamp means depends on who wrote it.',
    isAlike: true,
    caution: `${REWRITES} It takes the values as UTC.`,
  },
  json_instead_of_jsonb: {
    title: 'json instead of jsonb',
    why: 'json is parsed each time it is read, and no index finds what is in it.',
    isAlike: true,
    caution: `${REWRITES} jsonb keeps no white space, and no order of keys.`,
  },
};

export function textOfRule(rule: string): RuleText {
  return RULES[rule] ?? { title: rule.replaceAll('_', ' '), why: '' };
}
