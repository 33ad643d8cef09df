import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatCount, formatDuration, formatShare, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice } from '../../parts/fields.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { me } from '../../session/me.ts';
import { QUERIES_MAX, type QueryOrder, type QueryStatistic, type QueryStatistics, readQueries } from './insights-calls.ts';
import { QueryDialog } from './query-dialog.tsx';

const ORDERS = [
  ['totalTime', 'total time'],
  ['meanTime', 'mean time'],
  ['calls', 'calls'],
  ['rows', 'rows'],
  ['errors', 'errors'],
  ['bytes', 'bytes'],
] as const satisfies readonly (readonly [QueryOrder, string])[];

const order = signal<QueryOrder>('totalTime');

/** Which statements take the most time. */
export function QueriesTab() {
  const load = useLoad((signal) => readQueries(order.value, signal), [order.value]);
  return (
    <>
      <div class="insight-bar">
        <Choice label="Largest first, by" value={order.value} options={ORDERS} onChange={(next) => (order.value = next)} />
        <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
        {load.data !== undefined && <Since of={load.data} />}
      </div>
      <Loaded of={load}>{({ queries, others }) => <Queries queries={queries} others={others} />}</Loaded>
    </>
  );
}

/** A key sees the statements of its own role, an admin key also those of read keys. */
const WHOSE = { admin: 'of all keys', write: 'of admin and write keys', read: 'of read keys' } as const;

function Since({ of: { statsSince, queries } }: { readonly of: QueryStatistics }) {
  const what = queries.length === QUERIES_MAX ? `The first ${QUERIES_MAX} statements` : statements(queries.length);
  const whose = WHOSE[me.value?.key.scope ?? 'read'];
  return (
    <p class="muted number" role="status">
      {what} {whose}
      {statsSince !== null && `, counted since ${formatTime(statsSince)}`}
    </p>
  );
}

function statements(count: number): string {
  return `${formatCount(count)} ${count === 1 ? 'statement' : 'statements'}`;
}

function Queries({ queries, others }: Pick<QueryStatistics, 'queries' | 'others'>) {
  const [opened, setOpened] = useState<QueryStatistic>();
  if (queries.length === 0) {
    return (
      <Empty icon="clock" title="No statement has been counted yet">
        <p>Statements of this key’s role appear here when they have run. Those about transactions and settings are left out.</p>
      </Empty>
    );
  }
  const listedMs = queries.reduce((sum, { totalMs }) => sum + totalMs, 0);
  const shareOf = ({ totalMs }: QueryStatistic) => (listedMs === 0 ? 0 : totalMs / listedMs);
  return (
    <>
      <Table
        label="Statements"
        columns={columnsOf(shareOf)}
        rows={queries}
        keyOf={({ queryId }) => queryId}
        onOpen={setOpened}
        current={opened?.queryId}
      />
      <p class="muted">
        {others !== null &&
          `Besides those that are told apart, ${statements(others.calls)} ran that took ${formatDuration(others.totalMs)} in all. `}
        Times are counted at Postern’s doors. How many blocks were read, how statements were planned, and what runs inside of functions,
        only the server knows.
      </p>
      {opened !== undefined && <QueryDialog of={opened} share={shareOf(opened)} onClose={() => setOpened(undefined)} />}
    </>
  );
}

/** What of a statement is shown in a row. */
const SQL_MAX_CHARACTERS = 300;

function columnsOf(shareOf: (query: QueryStatistic) => number): readonly Column<QueryStatistic>[] {
  return [
    {
      title: 'Statement',
      isWide: true,
      cell: ({ sql }) => <code class="insight-sql">{sql.slice(0, SQL_MAX_CHARACTERS).replace(/\s+/g, ' ')}</code>,
    },
    { title: 'Calls', align: 'right', cell: ({ calls }) => formatCount(calls) },
    { title: 'Errors', align: 'right', cell: ({ errors }) => formatCount(errors) },
    { title: 'Mean', align: 'right', cell: ({ meanMs }) => formatDuration(meanMs) },
    { title: '99 %', align: 'right', cell: ({ p99Ms }) => formatDuration(p99Ms) },
    { title: 'Rows', align: 'right', cell: ({ rows }) => formatCount(rows) },
    { title: 'Total', align: 'right', cell: ({ totalMs }) => formatDuration(totalMs) },
    { title: 'Share', align: 'right', cell: (query) => <Share of={shareOf(query)} /> },
  ];
}

/** Of the time of all statements that are listed. */
function Share({ of: share }: { readonly of: number }) {
  return (
    <span class="insight-share" title="Of the time of all statements that are listed">
      <span class="insight-share-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
      <span>{formatShare(share)}</span>
    </span>
  );
}
