import type { Lease } from '../../../router/lease.ts';
import type { ParameterText } from '../../parameters/encode-parameters.ts';
import type { SessionOptions } from '../../session/sql-session.ts';
import { inspect } from '../inspection-transaction.ts';
import { relationsSql } from './relations.ts';
import { RULE_NAMES, type Rule, type RuleName, type Severity } from './rule.ts';
import { INTEGER_KEY_NEAR_END, JSON_INSTEAD_OF_JSONB, SEQUENCE_NEAR_END, TIMESTAMP_WITHOUT_TIME_ZONE } from './rules/columns.ts';
import { DUPLICATE_INDEX, FOREIGN_KEY_WITHOUT_INDEX, INVALID_INDEX, UNUSED_INDEX } from './rules/indexes.ts';
import { DEFINER_WITHOUT_SEARCH_PATH } from './rules/routines.ts';
import { LARGE_SEQUENTIAL_SCANS, NEVER_ANALYZED, NO_PRIMARY_KEY, NO_ROW_SECURITY } from './rules/tables.ts';

const RULES: readonly Rule[] = [
  INVALID_INDEX,
  INTEGER_KEY_NEAR_END,
  SEQUENCE_NEAR_END,
  DEFINER_WITHOUT_SEARCH_PATH,
  NO_PRIMARY_KEY,
  FOREIGN_KEY_WITHOUT_INDEX,
  DUPLICATE_INDEX,
  LARGE_SEQUENTIAL_SCANS,
  NEVER_ANALYZED,
  UNUSED_INDEX,
  NO_ROW_SECURITY,
  TIMESTAMP_WITHOUT_TIME_ZONE,
  JSON_INSTEAD_OF_JSONB,
];

export const ADVICE_MAX = 200;
/** So that one rule does not leave the others without a place. */
const ADVICE_PER_RULE_MAX = 50;

export interface Advice {
  readonly rule: RuleName;
  readonly severity: Severity;
  readonly schema: string;
  readonly table: string | null;
  /** The index, constraint, column, sequence or routine. */
  readonly object: string | null;
  readonly message: string;
  /** A statement that cures it. */
  readonly cure: string | null;
}

export interface AdviceReply {
  readonly advice: readonly Advice[];
  /** false: there is more than is shown. */
  readonly isComplete: boolean;
}

export interface AdviceRequest extends SessionOptions {
  /** Counters of the relations as JSON, for a placement in which the organization may not read them; see `relations.ts`. */
  readonly counters: string | undefined;
  /** The role of the organization's readers, if it has a key for them. */
  readonly reader: string | undefined;
}

/**
 * What could be better in the organization's schema, with the statements that cure it. Nothing is changed. Takes over the lease.
 * @throws ServiceError `statement_timeout`, `query_canceled`, `backend_lost`, PostgresError `lock_not_available`
 */
export async function giveAdvice(lease: Lease, request: AdviceRequest): Promise<AdviceReply> {
  const { placement } = lease.tenant.organization;
  const schema = placement.kind === 'schema' ? placement.schema : null;
  const found = await inspect(lease, request, (session) =>
    session.rows(adviceSql(relationsSql(placement)), [schema, request.counters ?? null, request.reader ?? null]),
  );
  const each = new Map<string, number>();
  const kept = found.filter(([rule]) => {
    const count = (each.get(rule ?? '') ?? 0) + 1;
    each.set(rule ?? '', count);
    return count <= ADVICE_PER_RULE_MAX;
  });
  return { advice: kept.slice(0, ADVICE_MAX).map(readAdvice), isComplete: kept.length === found.length && kept.length <= ADVICE_MAX };
}

/** One statement, so that the relations are looked up once, and in one snapshot. */
function adviceSql(relations: string): string {
  const parts = RULES.map(
    ({ name, severity, sql }) =>
      `(SELECT '${name}'::pg_catalog.text, '${severity}'::pg_catalog.text, found.* FROM (${sql}) AS found LIMIT ${ADVICE_PER_RULE_MAX + 1})`,
  );
  return `WITH ${relations} ${parts.join(' UNION ALL ')}`;
}

function readAdvice([rule, severity, schema, table, object, message, cure]: readonly ParameterText[]): Advice {
  return {
    rule: RULE_NAMES.find((name) => name === rule) ?? 'no_primary_key',
    severity: severity === 'warning' ? 'warning' : 'info',
    schema: schema ?? '',
    table: table ?? null,
    object: object ?? null,
    message: message ?? '',
    cure: cure ?? null,
  };
}
