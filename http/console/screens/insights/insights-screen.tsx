import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, isAbort } from '../../api/client.ts';
import { useLoad } from '../../api/use-load.ts';
import { formatBytes, formatCount, formatDuration, formatShare, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock, CopyButton } from '../../parts/copying.tsx';
import { Confirmation, Dialog } from '../../parts/dialog.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice } from '../../parts/fields.tsx';
import { ScreenPage, type Tab, Tabs } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { isOwner, me } from '../../session/session.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { begin, draft } from '../migrations/migrations.ts';
import { openInEditor } from '../sql/sql-screen-state.ts';
import {
  type Advice,
  type AdviceReply,
  explain,
  QUERIES_MAX,
  QUERY_TEXT_MAX_CHARACTERS,
  type QueryOrder,
  type QueryStatistic,
  type QueryStatistics,
  readAdvice,
  readQueries,
  textOfRule,
  whyNoPlan,
} from './insights.ts';

const TABS: readonly Tab[] = [
  { id: 'queries', title: 'Queries' },
  { id: 'advice', title: 'Advice' },
];

/** @param rest which tab: `advice`, else the queries */
export function InsightsScreen({ rest }: { readonly rest: string }) {
  const current = rest === 'advice' ? 'advice' : 'queries';
  useEffect(() => {
    screenCommands.value = [
      { title: 'Queries that take the most time', group: 'Insights', icon: 'clock', run: () => goTo('insights', 'queries') },
      { title: 'Advice', group: 'Insights', icon: 'bulb', run: () => goTo('insights', 'advice') },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  return (
    <ScreenPage title="Insights" lead="Which statements take the most time, and what could be better in the schema.">
      <div class="insights">
        <Tabs label="Insights" tabs={TABS} current={current} onChange={(id) => goTo('insights', id)}>
          {current === 'advice' ? <AdviceTab /> : <QueriesTab />}
        </Tabs>
      </div>
    </ScreenPage>
  );
}

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
function QueriesTab() {
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
const WHOSE = { admin: 'of all keys', write: 'of admin and write keys', data: 'of data keys', read: 'of read keys' } as const;

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

interface QueryDialogProps {
  readonly of: QueryStatistic;
  /** Of the time of all statements that are listed: 0 to 1. */
  readonly share: number;
  readonly onClose: () => void;
}

type Plan = { readonly isBusy: true } | { readonly text: string } | { readonly error: unknown };

/** The whole text of a statement, all that was counted of it, and its plan. */
function QueryDialog({ of: query, share, onClose }: QueryDialogProps) {
  const [plan, setPlan] = useState<Plan>();
  const abandoned = useRef(new AbortController());
  useEffect(() => () => abandoned.current.abort(), []);
  const isCut = query.sql.length >= QUERY_TEXT_MAX_CHARACTERS;
  const refusal = whyNoPlan(query);
  const show = async () => {
    setPlan({ isBusy: true });
    try {
      setPlan({ text: await explain(query, abandoned.current.signal) });
    } catch (error) {
      if (!isAbort(error)) setPlan({ error });
    }
  };
  return (
    <Dialog title="Statement" class="wide" onClose={onClose}>
      <CodeBlock
        text={query.sql}
        label={isCut ? 'Its beginning, with $1, $2, … in place of constants' : 'With $1, $2, … in place of constants'}
      />
      {plan !== undefined && 'text' in plan && (
        <CodeBlock text={plan.text} label="Plan for whatever the values are. Costs and rows are estimated; nothing was run." />
      )}
      {plan !== undefined && 'error' in plan && <PlanError error={plan.error} />}
      <dl class="facts">
        {factsOf(query, share).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        <div>
          <dt>Query id</dt>
          <dd>
            <code>{query.queryId}</code>
            <CopyButton text={query.queryId} label="Copy the query id" isSmall />
          </dd>
        </div>
      </dl>
      <footer>
        {refusal !== undefined && <p class="muted">{refusal}</p>}
        <Button icon="sql" onClick={() => openInEditor(query.sql)}>
          Open in SQL
        </Button>
        <Button icon="steps" isDisabled={refusal !== undefined} isBusy={plan !== undefined && 'isBusy' in plan} onClick={() => void show()}>
          Plan
        </Button>
      </footer>
    </Dialog>
  );
}

function PlanError({ error }: { readonly error: unknown }) {
  const isOfText = error instanceof ApiError && error.problem.statementIndex === 1;
  return (
    <>
      <ProblemNotice error={error} />
      {isOfText && (
        <p class="muted">
          $1 stands in place of a constant. Where only a constant may stand, as in <code>interval '1 day'</code>, or where its type is not
          clear without it, such a text cannot be planned: put values in, and explain it in the SQL editor.
        </p>
      )}
    </>
  );
}

function factsOf(query: QueryStatistic, share: number): readonly (readonly [string, string])[] {
  const { calls, errors, totalMs, meanMs, p99Ms, maxMs, rows, bytes, firstSeenAt, lastSeenAt } = query;
  return [
    ['Calls', errors === 0 ? formatCount(calls) : `${formatCount(calls)}, ${formatCount(errors)} of them failed`],
    ['Total', `${formatDuration(totalMs)}, ${formatShare(share)} of what is listed`],
    ['Mean', formatDuration(meanMs)],
    ['99 % within', formatDuration(p99Ms)],
    ['Longest', formatDuration(maxMs)],
    ['Rows', `${formatCount(rows)}, ${formatCount(Math.round((rows / Math.max(1, calls)) * 10) / 10)} a call`],
    ['Replies', `${formatBytes(bytes)}, ${formatBytes(Math.round(bytes / Math.max(1, calls)))} a call`],
    ['Seen', `first ${formatTime(firstSeenAt)}, last ${formatTime(lastSeenAt)}`],
  ];
}

/** What could be better in the schema. */
function AdviceTab() {
  const load = useLoad(readAdvice);
  return (
    <>
      <div class="insight-bar">
        <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
        {load.data !== undefined && (
          <p class="muted number" role="status">
            {countsOf(load.data.advice)}. It is read from the catalogs and statistics; nothing is changed.
          </p>
        )}
      </div>
      <Loaded of={load}>{(reply) => <Groups reply={reply} />}</Loaded>
    </>
  );
}

function countsOf(advice: readonly Advice[]): string {
  const warnings = advice.filter(({ severity }) => severity === 'warning').length;
  const hints = advice.length - warnings;
  return `${formatCount(warnings)} ${warnings === 1 ? 'warning' : 'warnings'}, ${formatCount(hints)} ${hints === 1 ? 'hint' : 'hints'}`;
}

function Groups({ reply: { advice, isComplete } }: { readonly reply: AdviceReply }) {
  if (advice.length === 0) {
    return (
      <Empty icon="check" title="Nothing to advise">
        <p>None of the rules finds anything in what this key sees. Some go by how tables are used, so they need some time.</p>
      </Empty>
    );
  }
  return (
    <>
      {!isComplete && (
        <Notice tone="info">
          <p>There is more: 50 pieces of advice by each rule are shown, and 200 in all.</p>
        </Notice>
      )}
      {[...new Set(advice.map(({ rule }) => rule))].map((rule) => (
        <Group key={rule} rule={rule} found={advice.filter((one) => one.rule === rule)} />
      ))}
    </>
  );
}

/** How many objects of a rule are shown at first. */
const SHOWN_FIRST = 5;

function Group({ rule, found }: { readonly rule: string; readonly found: readonly Advice[] }) {
  const [isWhole, setWhole] = useState(false);
  const { title, why, caution, isAlike = false } = textOfRule(rule);
  const cures = found.flatMap(({ cure }) => (cure === null ? [] : [cure]));
  const isWarning = found[0]?.severity === 'warning';
  const rest = found.length - SHOWN_FIRST;
  return (
    <section class="advice-group">
      <header>
        <div>
          <h2>
            {title} <span class={isWarning ? 'tag warning' : 'tag'}>{isWarning ? 'warning' : 'hint'}</span>
          </h2>
          <p>{why}</p>
          {caution !== undefined && cures.length > 0 && <p class="muted">{caution}</p>}
        </div>
        {cures.length > 1 && (
          <MigrationButton about={rule} cures={cures}>
            {`All ${cures.length} as one migration`}
          </MigrationButton>
        )}
      </header>
      <ul>
        {(isWhole ? found : found.slice(0, SHOWN_FIRST)).map((advice) => (
          <Item key={JSON.stringify([advice.schema, advice.table, advice.object])} of={advice} hasMessage={!isAlike} />
        ))}
      </ul>
      {!isWhole && rest > 0 && (
        <Button kind="quiet" icon="down" onClick={() => setWhole(true)}>
          {`Show ${rest} more`}
        </Button>
      )}
    </section>
  );
}

function Item({ of: { rule, schema, table, object, message, cure }, hasMessage }: { readonly of: Advice; readonly hasMessage: boolean }) {
  const about = [rule, table, object].filter(Boolean).join(' ');
  return (
    <li>
      <p class="advice-object">
        <code>
          {schema}.{table ?? object}
        </code>
        {table !== null && object !== null && <code class="muted">{object}</code>}
      </p>
      {hasMessage && <p class="muted">{message}</p>}
      {cure !== null && (
        <>
          <CodeBlock text={cure} />
          <div class="actions">
            <MigrationButton about={about} cures={[cure]}>
              As migration
            </MigrationButton>
            <Button icon="sql" onClick={() => openInEditor(cure)}>
              Open in SQL
            </Button>
          </div>
        </>
      )}
    </li>
  );
}

interface MigrationButtonProps {
  /** What the migration is about: part of its name. */
  readonly about: string;
  readonly cures: readonly string[];
  readonly children: string;
}

/** Begins a migration with these statements, and shows it. Keys that may not migrate get no button. */
function MigrationButton({ about, cures, children }: MigrationButtonProps) {
  const [isAsked, ask] = useState(false);
  if (!isOwner()) return null;
  const start = () => {
    begin({ name: nameOf(about), sql: `${cures.join(';\n')};`, isTransaction: !cures.some(isConcurrent) });
    goTo('migrations', 'new');
  };
  return (
    <>
      <Button icon="steps" onClick={() => (draft.peek().sql.trim() === '' ? start() : ask(true))}>
        {children}
      </Button>
      {isAsked && (
        <Confirmation
          title="Replace the migration that is being written?"
          action="Replace it"
          isDangerous
          onConfirm={start}
          onClose={() => ask(false)}
        >
          <p>
            What was written there{draft.value.name === '' ? '' : ` under the name “${draft.value.name}”`} is lost, unless it has been
            applied.
          </p>
        </Confirmation>
      )}
    </>
  );
}

/** Such a statement cannot run in a transaction. The server has written it, so it begins like that. */
function isConcurrent(cure: string): boolean {
  return /^(CREATE|DROP|REINDEX) INDEX CONCURRENTLY /.test(cure);
}

const NAME_MAX_CHARACTERS = 80;

/** `2025-01-31-duplicate-index-orders` */
function nameOf(about: string): string {
  const words = about
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, '-')
    .replace(/^-|-$/g, '');
  return `${new Date().toISOString().slice(0, 10)}-${words}`.slice(0, NAME_MAX_CHARACTERS);
}
