import { useState } from 'preact/hooks';
import { useLoad } from '../../../api/use-load.ts';
import { formatAgo } from '../../../format.ts';
import { hasWords } from '../../../has-words.ts';
import { Button } from '../../../parts/button.tsx';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { Confirmation } from '../../../parts/dialog.tsx';
import { Empty } from '../../../parts/empty.tsx';
import { Field } from '../../../parts/fields.tsx';
import { Loaded } from '../../../parts/loaded.tsx';
import { me } from '../../../session/me.ts';
import { say, sayError } from '../../../shell/toasts.tsx';
import { openText, tabs } from '../sql-screen-state.ts';
import { hideLibraryWhereNarrow } from './hide-library-where-narrow.ts';
import { changes, deleteSaved, listSaved, readSaved, type SavedQuery } from './saved-query-calls.ts';

export function SavedList() {
  const [text, setText] = useState('');
  const [toDelete, setToDelete] = useState<SavedQuery>();
  const load = useLoad(listSaved, [changes.value]);
  return (
    <div class="sql-list">
      <Field label="Find" type="search" value={text} onInput={setText} placeholder="Name, description, SQL" />
      <Loaded of={load}>
        {(queries) => {
          const found = queries.filter((query) => hasWords(`${query.name} ${query.description ?? ''} ${query.sql}`, text));
          if (queries.length === 0)
            return (
              <Empty icon="star" title="Nothing is saved">
                <p>“Save” keeps a query for all keys of the organization.</p>
              </Empty>
            );
          if (found.length === 0) return <p class="muted">Nothing has these words.</p>;
          return (
            <ul>
              {found.map((query) => (
                <Entry key={query.name} query={query} onDelete={() => setToDelete(query)} />
              ))}
            </ul>
          );
        }}
      </Loaded>
      {toDelete !== undefined && <Deletion query={toDelete} onClose={() => setToDelete(undefined)} />}
    </div>
  );
}

function Entry({ query, onDelete }: { readonly query: SavedQuery; readonly onDelete: () => void }) {
  const { name, description, sql, updatedAt } = query;
  return (
    <li>
      <button type="button" class="sql-entry" title={sql.slice(0, 1_000)} onClick={() => void openSaved(name)}>
        <strong>{name}</strong>
        <span>{description ?? <code>{sql.slice(0, 120)}</code>}</span>
        <span class="muted">{formatAgo(updatedAt)}</span>
      </button>
      {me.value?.key.scope !== 'read' && <Button kind="quiet" icon="trash" label={`Delete ${name}`} onClick={onDelete} />}
    </li>
  );
}

/** As it is now, and with its version: so that a change of somebody else is noticed. */
async function openSaved(name: string): Promise<void> {
  try {
    const saved = await readSaved(name);
    openText({ text: saved.sql, saved });
    hideLibraryWhereNarrow();
  } catch (error) {
    sayError(error, () => void openSaved(name));
  }
}

function Deletion({ query: { name, sql }, onClose }: { readonly query: SavedQuery; readonly onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      await deleteSaved(name);
      // The texts stay, and are no longer saved.
      for (const tab of tabs.peek()) if (tab.saved.peek()?.name === name) tab.saved.value = undefined;
      say(`“${name}” is deleted.`);
      onClose();
    } catch (error) {
      setBusy(false);
      sayError(error);
    }
  };
  return (
    <Confirmation title={`Delete “${name}”?`} action="Delete" isDangerous isBusy={isBusy} onClose={onClose} onConfirm={() => void remove()}>
      <p>It is deleted for all keys of the organization.</p>
      <CodeBlock text={sql} />
    </Confirmation>
  );
}
