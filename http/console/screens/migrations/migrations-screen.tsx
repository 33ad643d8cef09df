import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatAgo, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { me } from '../../session/me.ts';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { listMigrations, type Migration } from './migration-calls.ts';
import { MigrationDialog } from './migration-dialog.tsx';
import { NewMigration } from './new-migration.tsx';

const LEAD = 'Changes of the schema, each applied once. The history is a table of the database, and part of a dump.';

/** @param rest `new`: one is being written */
export function MigrationsScreen({ rest }: { readonly rest: string }) {
  if (me.value?.key.scope !== 'read') return rest === 'new' ? <NewMigration /> : <History />;
  return (
    <ScreenPage title="Migrations" lead={LEAD}>
      <MissingScopeNotice scopes={['write', 'admin']} what="see or apply migrations" />
    </ScreenPage>
  );
}

function History() {
  const load = useLoad(listMigrations);
  const [opened, setOpened] = useState<Migration>();
  useEffect(() => {
    screenCommands.value = [{ title: 'New migration', group: 'Migrations', icon: 'plus', run: write }];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
      <Button kind="primary" icon="plus" onClick={write}>
        New migration
      </Button>
    </>
  );
  return (
    <ScreenPage title="Migrations" lead={LEAD} actions={actions}>
      <Loaded of={load}>
        {(migrations) =>
          migrations.length === 0 ? (
            <Nothing />
          ) : (
            <Table
              label="Migrations"
              columns={COLUMNS}
              rows={migrations}
              keyOf={({ name }) => name}
              onOpen={setOpened}
              current={opened?.name}
            />
          )
        }
      </Loaded>
      {opened !== undefined && <MigrationDialog of={opened} onClose={() => setOpened(undefined)} />}
    </ScreenPage>
  );
}

function write(): void {
  goTo('migrations', 'new');
}

const COLUMNS: readonly Column<Migration>[] = [
  { title: 'Name', isWide: true, cell: ({ name }) => <code>{name}</code> },
  {
    title: 'Status',
    cell: ({ status }) => <span class={status === 'failed' ? 'tag bad' : 'tag good'}>{status}</span>,
  },
  { title: 'Applied', cell: ({ appliedAt }) => <time title={formatAgo(appliedAt)}>{formatTime(appliedAt)}</time> },
  {
    title: 'Statements',
    align: 'right',
    cell: ({ status, statementCount, statementsApplied }) =>
      status === 'failed' ? `${formatCount(statementsApplied)} of ${formatCount(statementCount)}` : formatCount(statementCount),
  },
  { title: 'Duration', align: 'right', cell: ({ durationMs }) => formatDuration(durationMs) },
];

function Nothing() {
  return (
    <Empty icon="steps" title="No migration has been applied">
      <p>What changes the schema is best applied as a migration: tried out first, all or nothing, and written down.</p>
      <Button onClick={write}>Write the first</Button>
    </Empty>
  );
}
