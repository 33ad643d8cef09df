import type { ComponentChildren } from 'preact';
import { Button } from '../../../parts/button.tsx';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { Dialog } from '../../../parts/dialog.tsx';
import { goTo } from '../../../shell/route.ts';
import { closeChange } from './open-change.ts';
import { addToMigration, beginMigration, isWriting, mayAdd, type ProposedMigration } from './proposed-migration.ts';

interface ChangeDialogProps {
  readonly title: string;
  /** Undefined: something has to be filled in. */
  readonly migration: ProposedMigration | undefined;
  readonly isWide?: boolean;
  readonly children: ComponentChildren;
}

/** A dialog with its fields, the SQL they make, and the ways into a migration. */
export function ChangeDialog({ title, migration, isWide = false, children }: ChangeDialogProps) {
  const use = (how: (migration: ProposedMigration) => void) => {
    if (migration === undefined) return;
    how(migration);
    closeChange();
    goTo('migrations', 'new');
  };
  return (
    <Dialog title={title} onClose={closeChange} class={`schema-change${isWide ? ' wide' : ''}`}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          use(migration !== undefined && mayAdd(migration) ? addToMigration : beginMigration);
        }}
      >
        {children}
        <div class="preview" aria-live="polite">
          {migration !== undefined && <CodeBlock label="SQL" text={migration.sql} />}
          {migration?.isTransaction === false && (
            <p class="muted">It runs outside a transaction: writers go on meanwhile, and there is no dry run.</p>
          )}
        </div>
        <p class="muted">Nothing runs yet: the SQL becomes a migration, which you can change, try out and apply.</p>
        <footer>
          <Button onClick={closeChange}>Cancel</Button>
          {migration !== undefined && mayAdd(migration) && <Button onClick={() => use(beginMigration)}>Begin a new migration</Button>}
          <Button kind="primary" type="submit" isDisabled={migration === undefined}>
            {labelOf(migration)}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

function labelOf(migration: ProposedMigration | undefined): string {
  if (migration === undefined || !isWriting()) return 'To the migration';
  return mayAdd(migration) ? 'Add to the migration being written' : 'Replace the migration being written';
}
