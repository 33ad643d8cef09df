import type { SchemaIndex, SchemaTable } from '../../../api/database-schema.ts';
import { formatBytes, formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { Section } from '../../../parts/layout/section.tsx';
import { type Column, Table } from '../../../parts/table.tsx';
import { openChange } from '../changes/open-change.ts';

export function IndexTable({ table, canChange }: { readonly table: SchemaTable; readonly canChange: boolean }) {
  if (table.indexes.length === 0) return null;
  const ofConstraints = new Set([table.primaryKey, ...table.unique, ...table.exclusions].map((one) => one?.name));
  const columns: readonly Column<SchemaIndex>[] = [
    {
      title: 'Index',
      cell: (index) => (
        <div class="column-name">
          <span>
            {index.name} {index.isUnique && <span class="tag">unique</span>} {!index.isValid && <span class="tag bad">invalid</span>}
          </span>
        </div>
      ),
    },
    { title: 'Definition', isWide: true, cell: ({ definition }) => <code>{definition.replace(/^.*? USING /s, '')}</code> },
    { title: 'Size', align: 'right', cell: ({ bytes }) => formatBytes(bytes) },
    { title: 'Scans', align: 'right', cell: ({ scans }) => (scans === null ? <span class="muted">not known</span> : formatCount(scans)) },
    ...(canChange
      ? [
          {
            title: '',
            cell: (index: SchemaIndex) =>
              ofConstraints.has(index.name) ? null : (
                <Button
                  kind="quiet"
                  icon="trash"
                  label={`Drop the index ${index.name}`}
                  onClick={() =>
                    openChange({ kind: 'drop', what: 'INDEX', schema: table.schema, name: index.name, again: `${index.definition};` })
                  }
                />
              ),
          },
        ]
      : []),
  ];
  return (
    <Section title="Indexes">
      <Table label="Indexes" rows={table.indexes} keyOf={({ name }) => name} columns={columns} />
    </Section>
  );
}

export function PolicyList({ table }: { readonly table: SchemaTable }) {
  const { rowSecurity, isRowSecurityForced, policies } = table;
  if (!rowSecurity && policies.length === 0) return null;
  return (
    <Section title="Row-level security">
      <p class={rowSecurity ? 'muted' : 'warning'}>
        {!rowSecurity && 'It is not enabled: the policies have no effect.'}
        {rowSecurity &&
          (isRowSecurityForced ? 'Enabled, for the owner too.' : 'Enabled. It does not hold for the owner, whose role keys have.')}
        {rowSecurity && policies.length === 0 && ' There is no policy, so others see no row.'}
      </p>
      {policies.length > 0 && (
        <Table
          label="Policies"
          rows={policies}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Policy', cell: ({ name, isPermissive }) => (isPermissive ? name : `${name} (restrictive)`) },
            { title: 'For', cell: ({ command }) => command },
            { title: 'To', cell: ({ roles }) => roles.join(', ') },
            { title: 'Rows seen', cell: ({ using }) => using !== null && <code>{using}</code> },
            { title: 'Rows written', isWide: true, cell: ({ check }) => check !== null && <code>{check}</code> },
          ]}
        />
      )}
    </Section>
  );
}

export function TriggerList({ table: { triggers } }: { readonly table: SchemaTable }) {
  if (triggers.length === 0) return null;
  return (
    <Section title="Triggers">
      {triggers.map(({ name, definition, isEnabled }) => (
        <CodeBlock key={name} label={isEnabled ? name : `${name}, disabled`} text={definition} />
      ))}
    </Section>
  );
}
