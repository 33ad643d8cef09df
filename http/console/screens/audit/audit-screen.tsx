import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { me } from '../../session/me.ts';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import type { AuditEntry, AuditPage } from './audit-calls.ts';
import { searchAudit } from './audit-calls.ts';
import { EntryDialog } from './entry-dialog.tsx';
import { EntryTable } from './entry-table.tsx';
import { ExportButton } from './export-button.tsx';
import { FilterBar } from './filter-bar.tsx';
import { cursors, filters, NO_FILTERS, searchOf, setFilters } from './filters-and-cursors.ts';
import { VerificationNotice, verification, verify } from './verification.tsx';

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
