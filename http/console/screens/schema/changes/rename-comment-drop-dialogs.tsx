import { useState } from 'preact/hooks';
import { Checkbox, Field } from '../../../parts/fields.tsx';
import { Notice } from '../../../parts/notice.tsx';
import { ChangeDialog } from './change-dialog.tsx';
import { changeComment, drop, rename } from './change-sql.ts';
import type { Change } from './open-change.ts';

type Of<Kind extends Change['kind']> = { readonly of: Extract<Change, { readonly kind: Kind }> };

export function RenameDialog({ of }: Of<'rename'>) {
  const [name, setName] = useState(of.name);
  const isChanged = name !== '' && name !== of.name;
  return (
    <ChangeDialog title={`Rename ${of.name}`} migration={isChanged ? rename(of, name) : undefined}>
      <Field label="Name" value={name} onInput={setName} isMono isRequired />
      <p class="muted">Views and foreign keys follow. Queries, functions and programs that use the old name fail from then on.</p>
    </ChangeDialog>
  );
}

export function CommentDialog({ of }: Of<'comment'>) {
  const [comment, setComment] = useState(of.comment ?? '');
  const isChanged = comment !== (of.comment ?? '');
  return (
    <ChangeDialog title={`Comment on ${of.name}`} migration={isChanged ? changeComment(of, of.comment, comment) : undefined}>
      <Field label="Comment" value={comment} onInput={setComment} rows={4} hint="Empty: the comment is taken away." />
    </ChangeDialog>
  );
}

/** What of each kind is lost. */
const LOSSES: Readonly<Record<string, string>> = {
  TABLE: 'The table goes with all its rows, indexes and triggers.',
  'MATERIALIZED VIEW': 'The view goes with the rows that it keeps.',
  SEQUENCE: 'Where the sequence stood is lost.',
};

export function DropDialog({ of }: Of<'drop'>) {
  const [isCascading, setCascading] = useState(false);
  return (
    <ChangeDialog title={`Drop ${of.name}`} migration={drop(of, of.again, isCascading)}>
      <Notice tone="warning">
        <p>{LOSSES[of.what] ?? `The ${of.what.toLowerCase()} goes.`}</p>
      </Notice>
      {of.what !== 'INDEX' && <Checkbox label="CASCADE: with whatever depends on it" isChecked={isCascading} onChange={setCascading} />}
    </ChangeDialog>
  );
}
