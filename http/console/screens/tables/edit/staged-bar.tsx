import { useEffect, useState } from 'preact/hooks';
import { Button } from '../../../parts/button.tsx';
import { Confirmation } from '../../../parts/dialog.tsx';
import type { OpenTable } from '../browse/open-table.ts';
import { ReviewDialog } from './review-dialog.tsx';
import { conflictsIn, isNothing, NOTHING, summaryOf } from './staged-changes.ts';

/** What waits to be saved. */
export function StagedBar({ open }: { readonly open: OpenTable }) {
  const [shown, show] = useState<'review' | 'discard'>();
  const staged = open.staged.value;
  const isEmpty = isNothing(staged);
  useEffect(() => {
    if (isEmpty) show(undefined);
  }, [isEmpty]);
  if (isEmpty) return null;
  const conflicts = conflictsIn(staged).length;
  return (
    <div class="tables-staged">
      <span>
        {summaryOf(staged)}, not saved
        {conflicts > 0 && (
          <strong class="bad"> · {conflicts === 1 ? '1 row was' : `${conflicts} rows were`} changed by somebody else</strong>
        )}
      </span>
      <Button kind="quiet" onClick={() => show('discard')}>
        Discard
      </Button>
      <Button kind="primary" onClick={() => show('review')}>
        Review and save
      </Button>
      {shown === 'review' && <ReviewDialog open={open} onClose={() => show(undefined)} />}
      {shown === 'discard' && (
        <Confirmation
          title="Discard the changes?"
          action="Discard"
          isDangerous
          onClose={() => show(undefined)}
          onConfirm={() => {
            open.staged.value = NOTHING;
          }}
        >
          <p>
            {summaryOf(staged)} in {open.table.name}: nothing of it has been saved, and it will be forgotten.
          </p>
        </Confirmation>
      )}
    </div>
  );
}
