import type { ComponentChildren } from 'preact';
import { Button } from '../../parts/button.tsx';
import { Empty } from '../../parts/empty.tsx';
import { isOwner } from '../../session/session.ts';
import { goTo } from '../../shell/route.ts';
import { sayError } from '../../shell/toasts.tsx';

/** What to do first in a database that has no table. */
export function NoTables({ children }: { /** More buttons. */ readonly children?: ComponentChildren }) {
  const canChange = isOwner();
  return (
    <Empty icon="table" title="There is no table yet">
      {canChange ? (
        <p>Make the first one here, or connect psql or your application.</p>
      ) : (
        <p>This key can make none. A key with the scope write can.</p>
      )}
      <div class="actions">
        {canChange && (
          <Button icon="plus" onClick={() => void makeTable()}>
            New table
          </Button>
        )}
        {canChange && children}
        <Button icon="plug" onClick={() => goTo('connect')}>
          Connect
        </Button>
      </div>
    </Empty>
  );
}

async function makeTable(): Promise<void> {
  try {
    const { openChange } = await import('../schema/changes.ts');
    openChange({ kind: 'new table' });
    goTo('schema');
  } catch (error) {
    sayError(error, () => void makeTable());
  }
}
