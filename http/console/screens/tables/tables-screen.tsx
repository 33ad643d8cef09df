import type { Schema } from '../../api/database-schema.ts';
import { loadSchema } from '../../api/load-schema.ts';
import { useLoad } from '../../api/use-load.ts';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { goTo } from '../../shell/route.ts';
import { openTable } from './browse/recent-tables.ts';
import { TableView } from './browse/table-view.tsx';
import { TableList } from './list/table-list.tsx';
import { tableName } from './sql/table-name.ts';

/** @param rest the table's qualified name; empty: the list of tables */
export function TablesScreen({ rest }: { readonly rest: string }) {
  const load = useLoad(loadSchema, [rest]);
  return rest === '' ? <TableList load={load} /> : <Loaded of={load}>{(schema) => <OneTable schema={schema} name={rest} />}</Loaded>;
}

function OneTable({ schema, name }: { readonly schema: Schema; readonly name: string }) {
  const table = schema.tables.find((one) => tableName(one) === name);
  if (table === undefined) return <Missing name={name} />;
  return <TableView key={name} open={openTable(table)} schema={schema} />;
}

function Missing({ name }: { readonly name: string }) {
  return (
    <ScreenPage title="Tables">
      <Empty icon="table" title="There is no such table">
        <p>
          <code>{name}</code> does not exist, or this key may not see it.
        </p>
        <Button onClick={() => goTo('tables')}>All tables</Button>
      </Empty>
    </ScreenPage>
  );
}
