import { useState } from 'preact/hooks';
import { Button } from '../../parts/button.tsx';
import { Confirmation } from '../../parts/dialog.tsx';
import { me } from '../../session/me.ts';
import { goTo } from '../../shell/route.ts';
import { begin, draft } from '../migrations/draft.ts';

export interface MigrationButtonProps {
  /** What the migration is about: part of its name. */
  readonly about: string;
  readonly cures: readonly string[];
  readonly children: string;
}

/** Begins a migration with these statements, and shows it. Keys that may not migrate get no button. */
export function MigrationButton({ about, cures, children }: MigrationButtonProps) {
  const [isAsked, ask] = useState(false);
  if (me.value?.key.scope === 'read') return null;
  const start = () => {
    begin({ name: nameOf(about), sql: `${cures.join(';\n')};`, isTransaction: !cures.some(isConcurrent) });
    goTo('migrations', 'new');
  };
  return (
    <>
      <Button icon="steps" onClick={() => (draft.peek().sql.trim() === '' ? start() : ask(true))}>
        {children}
      </Button>
      {isAsked && (
        <Confirmation
          title="Replace the migration that is being written?"
          action="Replace it"
          isDangerous
          onConfirm={start}
          onClose={() => ask(false)}
        >
          <p>
            What was written there{draft.value.name === '' ? '' : ` under the name “${draft.value.name}”`} is lost, unless it has been
            applied.
          </p>
        </Confirmation>
      )}
    </>
  );
}

/** Such a statement cannot run in a transaction. The server has written it, so it begins like that. */
function isConcurrent(cure: string): boolean {
  return /^(CREATE|DROP|REINDEX) INDEX CONCURRENTLY /.test(cure);
}

const NAME_MAX_CHARACTERS = 80;

/** `2025-01-31-duplicate-index-orders` */
function nameOf(about: string): string {
  const words = about
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, '-')
    .replace(/^-|-$/g, '');
  return `${new Date().toISOString().slice(0, 10)}-${words}`.slice(0, NAME_MAX_CHARACTERS);
}
