import { isTable, type SchemaTable } from '../../../api/database-schema.ts';
import { Button } from '../../../parts/button.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { goTo } from '../../../shell/route.ts';
import { openInEditor } from '../../sql/sql-screen-state.ts';
import { type ObjectKind, openChange } from '../changes/open-change.ts';
import { ObjectActions } from './object-actions.tsx';

const KINDS: Readonly<Record<SchemaTable['kind'], ObjectKind>> = {
  table: 'TABLE',
  'partitioned table': 'TABLE',
  view: 'VIEW',
  'materialized view': 'MATERIALIZED VIEW',
  'foreign table': 'FOREIGN TABLE',
};

export function TableActions({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
  const hasIndexes = isTable(table) || table.kind === 'materialized view';
  const name = qualifiedName(table.schema, table.name);
  const browse = (
    <>
      <Button icon="table" onClick={() => goTo('tables', name)}>
        Rows
      </Button>
      <Button icon="sql" onClick={() => openInEditor(`SELECT * FROM ${name} LIMIT 100;`)}>
        Query
      </Button>
    </>
  );
  if (!canChange) return browse;
  return (
    <>
      {browse}
      {isTable(table) && (
        <Button icon="plus" onClick={() => openChange({ kind: 'add column', table })}>
          Column …
        </Button>
      )}
      {hasIndexes && (
        <Button icon="plus" onClick={() => openChange({ kind: 'new index', table })}>
          Index …
        </Button>
      )}
      <ObjectActions what={KINDS[table.kind]} schema={table.schema} name={table.name} comment={table.comment} />
    </>
  );
}
