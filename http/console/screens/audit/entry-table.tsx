import { formatBytes, formatCount, formatDuration, formatTime } from '../../format.ts';
import { type Column, Table } from '../../parts/table.tsx';
import type { AuditEntry } from './audit-calls.ts';

const COLUMNS: readonly Column<AuditEntry>[] = [
  { title: 'Time', cell: ({ occurredAt }) => <time title={occurredAt}>{formatTime(occurredAt)}</time> },
  { title: 'Action', cell: (entry) => <Action of={entry} /> },
  { title: 'Key', cell: ({ actor }) => <KeyOf actor={actor} /> },
  { title: 'What', isWide: true, cell: (entry) => <What of={entry} /> },
  { title: 'Outcome', align: 'right', cell: ({ outcome }) => <Outcome of={outcome} /> },
];

export interface EntryTableProps {
  readonly entries: readonly AuditEntry[];
  readonly current: AuditEntry | undefined;
  readonly onOpen: (entry: AuditEntry) => void;
}

export function EntryTable({ entries, current, onOpen }: EntryTableProps) {
  return <Table label="Audit log" columns={COLUMNS} rows={entries} keyOf={({ id }) => id} onOpen={onOpen} current={current?.id} />;
}

function Action({ of: { action, surface } }: { readonly of: AuditEntry }) {
  return (
    <span>
      {action} <span class="tag">{surface}</span>
    </span>
  );
}

function KeyOf({ actor: { keyPrefix, keyId } }: Pick<AuditEntry, 'actor'>) {
  if (keyPrefix === null) return <span class="muted">none</span>;
  return <code title={keyId ?? undefined}>{keyPrefix}…</code>;
}

/** What of a statement is shown in a row. */
const SQL_MAX_CHARACTERS = 200;

function What({ of: { statement, session, sourceIp, applicationName } }: { readonly of: AuditEntry }) {
  if (statement !== undefined) return <code class="one-line">{oneLine(statement.sql)}</code>;
  const parts =
    session === undefined
      ? [sourceIp, applicationName]
      : [
          `${formatCount(session.statements)} ${session.statements === 1 ? 'statement' : 'statements'}`,
          `${formatBytes(session.bytesIn + session.bytesOut)}`,
          session.reason,
        ];
  return <span class="one-line muted">{parts.filter(Boolean).join(' · ')}</span>;
}

function oneLine(sql: string): string {
  return sql.slice(0, SQL_MAX_CHARACTERS).replace(/\s+/g, ' ');
}

function Outcome({ of: { status, sqlstate, httpStatus, rowCount, durationMs } }: { readonly of: AuditEntry['outcome'] }) {
  const figures = [
    rowCount === null ? undefined : `${formatCount(rowCount)} ${rowCount === 1 ? 'row' : 'rows'}`,
    durationMs === null ? undefined : formatDuration(durationMs),
  ].filter((figure) => figure !== undefined);
  return (
    <span class="audit-outcome">
      <span class="muted">{figures.join(' · ')}</span>
      {status === 'ok' ? <span class="tag good">ok</span> : <span class="tag bad">{sqlstate ?? httpStatus ?? 'error'}</span>}
    </span>
  );
}
