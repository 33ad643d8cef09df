import { useState } from 'preact/hooks';
import { TableLink } from '../objects/table-link.tsx';
import type { Graph } from './graph.ts';

/** What the diagram says, in words. */
export function RelationList({ graph: { relations } }: { readonly graph: Graph }) {
  const [isOpen, setOpen] = useState(false);
  if (relations.length === 0) return null;
  return (
    <details class="relation-list" onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>The relations as a list</summary>
      {isOpen && (
        <ul>
          {relations.map(({ id, from, to, key, isUnique }) => (
            <li key={id}>
              <TableLink schema={from.table.schema} name={from.table.name} address={from.id} /> ({key.columns.join(', ')}) refers to{' '}
              <TableLink schema={to.table.schema} name={to.table.name} address={to.id} /> ({key.referencedColumns.join(', ')})
              <span class="muted">, {isUnique ? 'one to one' : 'many to one'}</span>
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}
