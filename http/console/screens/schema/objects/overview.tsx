import type { Schema } from '../../../api/database-schema.ts';
import { saveFile } from '../../../downloads/save-file.ts';
import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { CopyButton } from '../../../parts/copying/copy-button.tsx';
import { Empty } from '../../../parts/empty.tsx';
import { NoTables } from '../../tables/list/no-tables.tsx';
import { schemaDdl } from '../ddl/schema-ddl.ts';

/** What is shown while no object is. */
export function Overview({ schema }: { readonly schema: Schema }) {
  const { tables, types, functions } = schema;
  if (tables.length + types.length + functions.length === 0) return <NoTables />;
  return (
    <Empty icon="schema" title="Choose an object">
      <p>
        {counted(tables.length, 'table or view', 'tables and views')}, {counted(types.length, 'type', 'types')},{' '}
        {counted(functions.length, 'function', 'functions')}. As SQL, without rows, owners and privileges, all of it can be made again
        elsewhere.
      </p>
      <div class="actions">
        <CopyButton label="Copy all as SQL" text={() => schemaDdl(schema)} />
        <Button icon="download" onClick={() => saveFile('schema.sql', schemaDdl(schema))}>
          Save as SQL
        </Button>
      </div>
    </Empty>
  );
}

function counted(count: number, one: string, many: string): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}
