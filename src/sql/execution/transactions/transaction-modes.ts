export type IsolationLevel = 'read uncommitted' | 'read committed' | 'repeatable read' | 'serializable';

export interface TransactionModes {
  readonly isolationLevel?: IsolationLevel;
  readonly readOnly?: boolean;
  readonly deferrable?: boolean;
}

/**
 * Makes the BEGIN of a transaction. In a READ ONLY one a SELECT takes a snapshot, after which nothing can make it READ WRITE again.
 * @see https://www.postgresql.org/docs/current/sql-set-transaction.html
 */
export function beginStatement({ isolationLevel, readOnly, deferrable }: TransactionModes): string {
  const modes = [
    isolationLevel && `ISOLATION LEVEL ${isolationLevel.toUpperCase()}`,
    readOnly !== undefined && (readOnly ? 'READ ONLY' : 'READ WRITE'),
    deferrable !== undefined && (deferrable ? 'DEFERRABLE' : 'NOT DEFERRABLE'),
  ];
  return `BEGIN ${modes.filter(Boolean).join(', ')}${readOnly ? '; SELECT' : ''}`;
}
