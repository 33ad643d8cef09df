import { join, type Sql, sql, value } from './parameterized-sql.ts';
import type { TableColumn } from './table-column.ts';

export const OPERATORS = {
  equal: '=',
  unequal: '≠',
  less: '<',
  lessOrEqual: '≤',
  greater: '>',
  greaterOrEqual: '≥',
  contains: 'contains',
  begins: 'begins with',
  null: 'is NULL',
  notNull: 'is not NULL',
} as const;

export type Operator = keyof typeof OPERATORS;

export function isOperator(text: string): text is Operator {
  return Object.hasOwn(OPERATORS, text);
}

/** Rows are shown for which all filters are true. */
export interface Filter {
  readonly column: string;
  readonly operator: Operator;
  readonly text: string;
}

export function needsText(operator: Operator): boolean {
  return operator !== 'null' && operator !== 'notNull';
}

/** `WHERE …`, or nothing. Filters of columns that are not there are left out. */
export function whereSql(columns: readonly TableColumn[], filters: readonly Filter[], more: readonly Sql[] = []): Sql {
  const conditions = filters.flatMap((filter) => {
    const column = columns.find(({ name }) => name === filter.column);
    return column === undefined ? [] : [conditionOf(column, filter)];
  });
  const all = [...conditions, ...more];
  return all.length === 0 ? sql`` : sql`\nWHERE ${join(all, '\n  AND ')}`;
}

const COMPARISONS: Readonly<Partial<Record<Operator, string>>> = {
  equal: '=',
  less: '<',
  lessOrEqual: '<=',
  greater: '>',
  greaterOrEqual: '>=',
};

/** PostgreSQL gives the parameter the type of the column. */
function conditionOf(column: TableColumn, { operator, text }: Filter): Sql {
  const { sqlName } = column;
  switch (operator) {
    case 'null':
      return sql`${sqlName} IS NULL`;
    case 'notNull':
      return sql`${sqlName} IS NOT NULL`;
    case 'contains':
      return sql`${sqlName}::text ILIKE ${value(`%${escapePattern(text)}%`)}`;
    case 'begins':
      return sql`${sqlName}::text ILIKE ${value(`${escapePattern(text)}%`)}`;
    case 'unequal':
      return sql`${comparable(column)} IS DISTINCT FROM ${value(text)}${column.cast}`;
    default:
      return sql`${comparable(column)} ${COMPARISONS[operator] ?? '='} ${value(text)}${column.cast}`;
  }
}

/** json and the like have no operators, so their texts are compared. */
export function comparable({ sqlName, isOrdered }: TableColumn): string {
  return isOrdered ? sqlName : `${sqlName}::text`;
}

function escapePattern(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}
