import type { Schema } from '../../../api/database-schema.ts';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { AddColumnDialog, AlterColumnDialog } from './column-dialogs.tsx';
import { COMMON_TYPES } from './column-fields.tsx';
import { IndexDialog } from './index-dialog.tsx';
import { change } from './open-change.ts';
import { CommentDialog, DropDialog, RenameDialog } from './rename-comment-drop-dialogs.tsx';
import { TableDialog } from './table-dialog.tsx';

/** The dialog that was asked for. */
export function ShownChangeDialog({ schema }: { readonly schema: Schema }) {
  const asked = change.value;
  if (asked === undefined) return null;
  const types = [...COMMON_TYPES, ...schema.types.map((type) => qualifiedName(type.schema, type.name))];
  switch (asked.kind) {
    case 'new table':
      return <TableDialog schema={schema} types={types} />;
    case 'add column':
      return <AddColumnDialog table={asked.table} types={types} />;
    case 'alter column':
      return <AlterColumnDialog table={asked.table} column={asked.column} types={types} />;
    case 'new index':
      return <IndexDialog table={asked.table} />;
    case 'rename':
      return <RenameDialog of={asked} />;
    case 'comment':
      return <CommentDialog of={asked} />;
    case 'drop':
      return <DropDialog of={asked} />;
  }
}
