import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatBytes, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock, CopyButton } from '../../parts/copying.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { me } from '../../session/session.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { say, sayError } from '../../shell/toasts.tsx';
import {
  type AuditEntry,
  type AuditPage,
  type AuditVerification,
  auditActions,
  cursors,
  exportAudit,
  type Filters,
  filters,
  NO_FILTERS,
  PERIODS,
  searchAudit,
  searchOf,
  setFilters,
  verifyAudit,
} from './audit.ts';

const PAGE_ENTRIES = 100;
const LEAD = 'What was done with the keys of the organization, at both doors. Each entry holds the hash of the one before it.';

/** @param rest the id of a request whose entries are to be shown */
export function AuditScreen({ rest }: { readonly rest: string }) {
  const isAdmin = me.value?.key.scope === 'admin';
  useEffect(() => {
    if (rest !== '') setFilters({ ...NO_FILTERS, requestId: rest });
  }, [rest]);
  if (isAdmin) return <Log />;
  return (
    <ScreenPage title="Audit" lead={LEAD}>
      <MissingScopeNotice scopes={['admin']} what="read the audit log" />
    </ScreenPage>
  );
}

function Log() {
  const after = cursors.value.at(-1);
  const load = useLoad(
    (signal) => searchAudit({ ...searchOf(filters.value), limit: PAGE_ENTRIES, ...(after === undefined ? {} : { after }) }, signal),
    [filters.value, after],
  );
  useEffect(() => {
    screenCommands.value = [
      { title: 'Verify the audit log', group: 'Audit', icon: 'shield', run: () => void verify() },
      { title: 'Clear the filters', group: 'Audit', icon: 'close', run: () => setFilters(NO_FILTERS) },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const isVerifying = verification.value !== undefined && 'isBusy' in verification.value;
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
      <ExportButton />
      <Button kind="primary" icon="shield" isBusy={isVerifying} onClick={() => void verify()}>
        Verify
      </Button>
    </>
  );
  return (
    <ScreenPage title="Audit" lead={LEAD} actions={actions}>
      <div class="audit">
        <VerificationNotice />
        <FilterBar />
        <Loaded of={load}>{(page) => <Entries page={page} />}</Loaded>
      </div>
    </ScreenPage>
  );
}

function Entries({ page }: { readonly page: AuditPage }) {
  const [opened, setOpened] = useState<AuditEntry>();
  const { data, unreadable = [] } = page;
  return (
    <>
      {unreadable.map(({ fromSeq, toSeq }) => (
        <Notice key={fromSeq} tone="bad">
          <p>
            The entries #{fromSeq} to #{toSeq} cannot be read: they were changed in the control database. Verify tells more.
          </p>
        </Notice>
      ))}
      {data.length === 0 ? <Nothing page={page} /> : <EntryTable entries={data} current={opened} onOpen={setOpened} />}
      <Pages page={page} />
      {opened !== undefined && (
        <EntryDialog
          entry={opened}
          onClose={() => setOpened(undefined)}
          onRequest={(requestId) => {
            setOpened(undefined);
            setFilters({ ...NO_FILTERS, requestId });
          }}
        />
      )}
    </>
  );
}

/** A page may be empty although there is more: the server looks for three seconds. */
function Nothing({ page: { hasMore } }: { readonly page: AuditPage }) {
  return (
    <Empty icon="search" title={hasMore ? 'Nothing so far' : 'Nothing found'}>
      <p>{hasMore ? 'The log is long. Older entries may match.' : 'No entry matches the filters.'}</p>
    </Empty>
  );
}

function Pages({ page: { data, hasMore, nextCursor } }: { readonly page: AuditPage }) {
  const [first, last] = [data[0], data.at(-1)];
  const isFirst = cursors.value.length === 0;
  if (isFirst && !hasMore && first === undefined) return null;
  return (
    <nav class="audit-pages" aria-label="Pages">
      <Button
        isDisabled={isFirst}
        onClick={() => {
          cursors.value = cursors.value.slice(0, -1);
        }}
      >
        Newer
      </Button>
      <Button
        isDisabled={!hasMore || nextCursor === null}
        onClick={() => {
          if (nextCursor !== null) cursors.value = [...cursors.value, nextCursor];
        }}
      >
        Older
      </Button>
      {first !== undefined && last !== undefined && (
        <span class="muted number">
          #{formatCount(first.seq)} to #{formatCount(last.seq)}
        </span>
      )}
    </nav>
  );
}

const OUTCOMES = [
  ['', 'any'],
  ['ok', 'ok'],
  ['error', 'error'],
] as const satisfies readonly (readonly [Filters['outcome'], string])[];

/** Choices filter at once, texts when they are sent: each search is a call, and stands in the log. */
function FilterBar() {
  const { data: actions = [] } = useLoad(auditActions);
  const now = filters.value;
  const [typed, setTyped] = useState(now);
  useEffect(() => setTyped(now), [now]);
  const names = actions.includes(now.action) || now.action === '' ? actions : [now.action, ...actions];
  return (
    <form
      class="audit-filters"
      onSubmit={(event) => {
        event.preventDefault();
        setFilters({ requestId: typed.requestId, since: typed.since, until: typed.until });
      }}
    >
      <Choice
        label="Action"
        value={now.action}
        options={[['', 'any'], ...names.map((name) => [name, name] as const)]}
        onChange={(action) => setFilters({ action })}
      />
      <Choice label="Outcome" value={now.outcome} options={OUTCOMES} onChange={(outcome) => setFilters({ outcome })} />
      <Choice label="Time" value={now.period} options={PERIODS} onChange={(period) => setFilters({ period })} />
      {now.period === 'between' && (
        <>
          <Field label="From" type="datetime-local" value={typed.since} onInput={(since) => setTyped({ ...typed, since })} />
          <Field label="Until" type="datetime-local" value={typed.until} onInput={(until) => setTyped({ ...typed, until })} />
        </>
      )}
      <Field
        class="request-id"
        label="Request id"
        type="search"
        value={typed.requestId}
        onInput={(requestId) => setTyped({ ...typed, requestId })}
        isMono
      />
      <Button type="submit" icon="search">
        Find
      </Button>
      {now !== NO_FILTERS && (
        <Button kind="quiet" onClick={() => setFilters(NO_FILTERS)}>
          Clear
        </Button>
      )}
    </form>
  );
}

const COLUMNS: readonly Column<AuditEntry>[] = [
  { title: 'Time', cell: ({ occurredAt }) => <time title={occurredAt}>{formatTime(occurredAt)}</time> },
  { title: 'Action', cell: (entry) => <Action of={entry} /> },
  { title: 'Key', cell: ({ actor }) => <KeyOf actor={actor} /> },
  { title: 'What', isWide: true, cell: (entry) => <What of={entry} /> },
  { title: 'Outcome', align: 'right', cell: ({ outcome }) => <Outcome of={outcome} /> },
];

interface EntryTableProps {
  readonly entries: readonly AuditEntry[];
  readonly current: AuditEntry | undefined;
  readonly onOpen: (entry: AuditEntry) => void;
}

function EntryTable({ entries, current, onOpen }: EntryTableProps) {
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

interface EntryDialogProps {
  readonly entry: AuditEntry;
  readonly onClose: () => void;
  /** Shows all entries of the same request. */
  readonly onRequest: (requestId: string) => void;
}

/** Everything that the log has of one entry. */
function EntryDialog({ entry, onClose, onRequest }: EntryDialogProps) {
  const { seq, action, statement, requestId } = entry;
  return (
    <Dialog title={`#${formatCount(seq)} ${action}`} class="wide" onClose={onClose}>
      {statement !== undefined && <CodeBlock text={statement.sql} label={labelOf(statement)} />}
      <dl class="facts">
        {factsOf(entry).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{text}</dd>
          </div>
        ))}
        {hashesOf(entry).map(([term, text]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>
              <code>{text}</code>
              <CopyButton text={text} label={`Copy ${term}`} isSmall />
            </dd>
          </div>
        ))}
      </dl>
      <footer>
        {requestId !== null && <Button onClick={() => onRequest(requestId)}>All of this request</Button>}
        <CopyButton text={JSON.stringify(entry, undefined, 2)} label="Copy as JSON" />
      </footer>
    </Dialog>
  );
}

/** Longer texts are cut at that in the log. */
const SQL_CUT_AT_CHARACTERS = 2_000;

function labelOf({ sql, paramCount }: NonNullable<AuditEntry['statement']>): string {
  const parameters = paramCount ? `, with ${paramCount} ${paramCount === 1 ? 'parameter' : 'parameters'}` : '';
  return `SQL${parameters}${sql.length >= SQL_CUT_AT_CHARACTERS ? '; its beginning' : ''}`;
}

/** Those that the entry has. */
function factsOf({ outcome, session, actor, ...entry }: AuditEntry): readonly (readonly [string, string])[] {
  const { status, sqlstate, httpStatus, rowCount, durationMs } = outcome;
  const facts: readonly (readonly [string, string | null | undefined])[] = [
    ['Time', `${formatTime(entry.occurredAt)} (${entry.occurredAt})`],
    ['Outcome', [status, sqlstate, httpStatus === null ? null : `HTTP ${httpStatus}`].filter(Boolean).join(' · ')],
    ['Rows', rowCount === null ? null : formatCount(rowCount)],
    ['Duration', durationMs === null ? null : formatDuration(durationMs)],
    ['Door', entry.surface],
    ['Key', actor.keyId === null ? null : `${actor.keyPrefix ?? ''}… · ${actor.keyId}`],
    ['Address', entry.sourceIp],
    ['Program', [entry.applicationName, entry.userAgent].filter(Boolean).join(' · ')],
    ['Statements', session && formatCount(session.statements)],
    ['Bytes', session && `${formatBytes(session.bytesIn)} in, ${formatBytes(session.bytesOut)} out`],
    ['Ended', session?.reason],
  ];
  return facts.flatMap(([term, text]) => (text ? [[term, text] as const] : []));
}

function hashesOf({ id, requestId, statement, hash, prevHash }: AuditEntry): readonly (readonly [string, string])[] {
  const ids: readonly (readonly [string, string | null | undefined])[] = [
    ['Entry id', id],
    ['Request id', requestId],
    ['SQL hash', statement?.sqlHash],
    ['Hash', hash],
    ['Hash before', prevHash],
  ];
  return ids.flatMap(([term, text]) => (text ? [[term, text] as const] : []));
}

type State = { readonly isBusy: true } | { readonly error: unknown } | { readonly at: string; readonly found: AuditVerification };

const verification = signal<State | undefined>(undefined);

async function verify(): Promise<void> {
  verification.value = { isBusy: true };
  try {
    const found = await verifyAudit(new AbortController().signal);
    verification.value = { at: new Date().toISOString(), found };
  } catch (error) {
    verification.value = { error };
  }
}

/** What came out of it, until it is done again. */
function VerificationNotice() {
  const state = verification.value;
  if (state === undefined || 'isBusy' in state) return null;
  if ('error' in state) return <ProblemNotice error={state.error} onRetry={() => void verify()} />;
  return state.found.ok ? <Unbroken at={state.at} found={state.found} /> : <Broken at={state.at} found={state.found} />;
}

interface FoundProps {
  readonly at: string;
  readonly found: AuditVerification;
}

function Unbroken({ at, found: { count, headSeq, headHash } }: FoundProps) {
  const note = `${at} ${me.value?.organizationId} #${headSeq} ${headHash}`;
  return (
    <Notice tone="good" actions={<CopyButton text={note} label="Copy for a note" />}>
      <p class="notice-title">
        All {formatCount(count)} entries are as they were written ({formatTime(at)}).
      </p>
      <p>
        Head: #{formatCount(headSeq)} <code>{headHash}</code>
      </p>
      <p class="muted">
        Note it elsewhere. Whoever can write to the control database could write the whole chain anew, but entry #{formatCount(headSeq)}{' '}
        would then have another hash than your note.
      </p>
    </Notice>
  );
}

const REASONS: Readonly<Record<string, string>> = {
  missing: 'is missing',
  changed: 'is not as it was written',
  not_linked: 'does not have the hash of the one before it',
  head_missing: 'should be there: the record of where the log ends is missing',
  head_differs: 'is not the one that was recorded as the last',
};

function Broken({ at, found: { count, firstBad } }: FoundProps) {
  const { seq = 0, id, reason = '' } = firstBad ?? {};
  return (
    <Notice tone="bad">
      <p class="notice-title">
        The log was changed: entry #{formatCount(seq)} {REASONS[reason] ?? reason}.
      </p>
      <p>
        {formatCount(count)} entries before it are as they were written ({formatTime(at)}). Only somebody with access to the control
        database can have done that.
      </p>
      {id !== undefined && <p class="muted mono">{id}</p>}
    </Notice>
  );
}

/** It goes on while another screen is shown. */
const running = signal<{ readonly entries: number; readonly cancel: () => void } | undefined>(undefined);

function ExportButton() {
  const now = running.value;
  if (now === undefined) {
    return (
      <Button icon="download" title="All entries that the filters find, as NDJSON" onClick={() => void start()}>
        Export
      </Button>
    );
  }
  return (
    <Button icon="stop" title="Cancel the export" onClick={now.cancel}>
      {formatCount(now.entries)} entries …
    </Button>
  );
}

async function start(): Promise<void> {
  const stopped = new AbortController();
  const show = (entries: number) => {
    running.value = { entries, cancel: () => stopped.abort() };
  };
  show(0);
  try {
    const exported = await exportAudit({ filters: searchOf(filters.value), signal: stopped.signal, onProgress: show });
    if (exported !== undefined) say(sentenceOf(exported));
  } catch (error) {
    sayError(error, () => void start());
  } finally {
    running.value = undefined;
  }
}

function sentenceOf({ entries, unreadable }: { readonly entries: number; readonly unreadable: number }): string {
  const lost = unreadable === 0 ? '' : ` ${formatCount(unreadable)} more cannot be read: Verify tells where.`;
  return `${formatCount(entries)} entries are exported.${lost}`;
}
