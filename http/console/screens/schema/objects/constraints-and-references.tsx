import { type ForeignKey, isTable, type Schema, type SchemaTable } from '../../../api/database-schema.ts';
import { Section } from '../../../parts/layout/section.tsx';
import { Table } from '../../../parts/table.tsx';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { TableLink } from './table-link.tsx';
import { referencesTo } from './table-references.ts';

/** Keys, unique columns, checks. */
export function Constraints({ table }: { readonly table: SchemaTable }) {
  const { primaryKey, unique, checks, exclusions } = table;
  const constraints = [...(primaryKey === null ? [] : [primaryKey]), ...unique, ...exclusions, ...checks];
  if (constraints.length === 0) {
    return isTable(table) && table.partitionOf === null ? (
      <Section title="Keys and checks">
        <p class="muted">It has no key: a row cannot be told from another that has the same values.</p>
      </Section>
    ) : null;
  }
  return (
    <Section title="Keys and checks">
      <Table
        label="Keys and checks"
        rows={constraints}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Name', cell: ({ name }) => name },
          { title: 'Definition', isWide: true, cell: ({ definition }) => <code>{definition}</code> },
        ]}
      />
    </Section>
  );
}

/** Foreign keys, in both directions. */
export function References({ schema, table }: { readonly schema: Schema; readonly table: SchemaTable }) {
  const incoming = referencesTo(schema, table);
  return (
    <>
      {table.foreignKeys.length > 0 && (
        <Section title="Refers to">
          <Table
            label="Refers to"
            rows={table.foreignKeys}
            keyOf={({ name }) => name}
            columns={[
              { title: 'Columns', cell: ({ columns }) => columns.join(', ') },
              { title: 'Table', cell: (key) => <Target of={key} /> },
              { title: 'On delete', cell: ({ onDelete }) => onDelete },
              { title: 'On update', cell: ({ onUpdate }) => onUpdate },
              { title: 'Name', isWide: true, cell: ({ name }) => <span class="muted">{name}</span> },
            ]}
          />
        </Section>
      )}
      {incoming.length > 0 && (
        <Section title="Referred to by">
          <Table
            label="Referred to by"
            rows={incoming}
            keyOf={({ table: from, key }) => `${qualifiedName(from.schema, from.name)} ${key.name}`}
            columns={[
              {
                title: 'Table',
                cell: ({ table: from }) => (
                  <TableLink schema={from.schema} name={from.name} address={qualifiedName(from.schema, from.name)} />
                ),
              },
              { title: 'Columns', cell: ({ key }) => `${key.columns.join(', ')} → ${key.referencedColumns.join(', ')}` },
              { title: 'On delete', cell: ({ key }) => key.onDelete },
              { title: 'Name', isWide: true, cell: ({ key }) => <span class="muted">{key.name}</span> },
            ]}
          />
        </Section>
      )}
    </>
  );
}

function Target({ of: { referencedSchema, referencedTable, referencedColumns } }: { readonly of: ForeignKey }) {
  return (
    <span>
      <TableLink schema={referencedSchema} name={referencedTable} address={qualifiedName(referencedSchema, referencedTable)} /> (
      {referencedColumns.join(', ')})
    </span>
  );
}
